"""Every family through the whole chain: profile, plan, quantize, evaluate, reload. None leaves weights alone in silence.

It prints the table of docs/families.md.
"""

import pytest
import torch

import laaciq
from laaciq.corpus import read_split
from laaciq.engine.progress import Progress
from laaciq.models import find_model, load
from laaciq.models.loading import auto_class
from laaciq.models.safetensors_files import tensor_headers
from laaciq.profiling.activations import blocks_in_encoder
from laaciq.quantization.checkpoint import apply_checkpoint
from laaciq.scoring.block_calls import BlockCalls
from laaciq.scoring.likelihood import target_losses
from laaciq.scoring.sequences import prepare_all
from tests.families import FAMILIES, save_family
from tests.tiny import passages_of

# One of each kind is planned under a budget, tuned and reported on. The others are quantized by GPTQ, which plans by rules.
PLANNED = ("Qwen3-MoE", "Llama 4 text", "Qwen3-Next", "Gemma 3 with vision")
BYTES = {"U8": 1, "F16": 2, "BF16": 2}
SENTENCES = ("The cat sat.", "A much longer sentence with number 42 in it.", "Привет, мир!")


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """Short passages of two languages."""
    folder = tmp_path_factory.mktemp("texts")
    for code, passages in read_split("builtin").calibration.select(["eng", "swa"]).by_language.items():
        (folder / f"{code}.txt").write_text("\n".join(text[:60] for text in passages.texts[:16]))
    return folder


@pytest.fixture(scope="module")
def table(request):
    headings = "family", "block weights quantized", "left in 16 bits", "beside the language model", "method", "bits"
    rows = [f"| {' | '.join(headings)} |", f"|{'---|' * len(headings)}"]
    yield rows
    plugins = request.config.pluginmanager
    terminal = plugins.getplugin("terminalreporter")
    if terminal is None:  # one of several processes, each with some of the families
        return
    with plugins.getplugin("capturemanager").global_and_fixture_disabled():
        for row in ("", *rows):
            terminal.write_line(row)


class Listening(Progress):
    def __init__(self):
        super().__init__()
        self.said = []

    def say(self, text):
        self.said.append(text)


@pytest.mark.filterwarnings("ignore:.*experts were sent fewer calibration tokens")
@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_goes_through_the_whole_chain(name, texts, table, tmp_path):
    family, heard = FAMILIES[name], Listening()
    folder = save_family(name, tmp_path / "model")
    common = {"texts": texts, "served_bound": 100.0, "progress": heard}
    if name in PLANNED:
        how, checkpoint = "planned, budget 6", tmp_path / "run/checkpoint"
        run = laaciq.run(folder, out=tmp_path / "run", budget=6.0, tune=1, baseline=False, **common)
        plan, evaluation = run.plan, run.evaluation
    else:
        how, checkpoint = "GPTQ, 4 bits, groups of 16", tmp_path / "q"
        plan = laaciq.quantize(folder, out=checkpoint, method="gptq", group_size=16, **common).plans.first
        evaluation = laaciq.evaluate(checkpoint, against=folder, **common)

    original = load(find_model(folder))
    anatomy = original.anatomy
    assert anatomy.parameter_count() == sum(p.numel() for p in original.module.parameters())
    left = {part.name: part for part in anatomy.left_in_blocks}
    assert {part.reason for part in left.values()} == family.reasons
    quantized = sum(tensor.weights for tensor in plan.in_blocks if tensor.quantized)
    assert quantized + sum(part.count for part in left.values()) == anatomy.block_weights
    assert quantized / anatomy.block_weights == pytest.approx(family.share, abs=5e-4)
    assert ("of the block weights stay in 16 bits" in heard.said[0]) == bool(left)
    for result in evaluation.languages:
        assert result.degradation is not None and abs(result.degradation.value) < 1

    headers = tensor_headers(find_model(checkpoint))
    on_disk = sum(torch.Size(header.shape).numel() * BYTES[header.dtype] for header in headers.values())
    # Codes of 3 and 6 bits fill up the last byte of a part.
    assert 0 <= on_disk - plan.size.model_bytes < (len(headers) if name in PLANNED else 1)
    reloaded = auto_class(original.module.config).from_pretrained(checkpoint, dtype=torch.float32)
    blocks_are_the_model(original)
    apply_checkpoint(original, checkpoint)
    tokens = torch.arange(3, 43).reshape(2, 20)
    with torch.no_grad():
        expected, given = (m(input_ids=tokens, use_cache=False).logits for m in (original.module, reloaded))
    torch.testing.assert_close(given, expected)

    reasons = ", ".join(sorted(family.reasons)) or "–"
    beside = {part.reason for part in anatomy.left_alone} & {"vision part", "projector"}
    assert bool(beside) == family.wrapped == ("Beside the language model" in heard.said[0])
    bits = f"{plan.size.block_bits_per_weight:.2f}"
    share = f"{100 * quantized / anatomy.block_weights:.1f} %"
    table.append(f"| {' | '.join((name, share, reasons, ', '.join(sorted(beside)) or '–', how, bits))} |")


def blocks_are_the_model(model):
    """Calibration runs blocks one at a time: together they must be the model."""
    sequences = [s for passage in prepare_all(model, passages_of(SENTENCES)) for s in passage.sequences]
    blocks = [model.module.get_submodule(name) for name in model.anatomy.block_names]
    with torch.inference_mode():
        calls = BlockCalls(model, blocks, blocks_in_encoder(model), sequences)
        hidden = calls.entering[0]
        for index in range(len(blocks)):
            hidden = calls.run(index, hidden)
        torch.testing.assert_close(calls.losses(hidden), target_losses(model, sequences))
