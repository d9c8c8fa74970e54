"""lm-evaluation-harness loads our checkpoints and finds what we find. It is no dependency: where it is not installed, only that is tested."""

import importlib.util
import subprocess
import sys

import pytest

import laaciq
from laaciq.errors import LaaciqError
from tests.tiny import save_tiny

needs_harness = pytest.mark.skipif(importlib.util.find_spec("lm_eval") is None, reason="lm-eval is not installed")
FEW = ["eng", "swa", "hin"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("harness")
    whole = laaciq.read_texts()
    (folder / "texts").mkdir()
    for code in FEW:
        (folder / f"texts/{code}.txt").write_text("\n".join(text[:80] for text in whole[code].texts[:10]))
    laaciq.tasks(folder / "tasks", texts=folder / "texts")
    return folder


def harness(folder, checkpoint, task, **options):
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager

    import laaciq.lm_eval  # noqa: F401

    evaluation = simple_evaluate(
        model="laaciq",
        model_args={"pretrained": str(checkpoint), "dtype": "float32", **options},
        tasks=[task],
        task_manager=TaskManager(include_path=str(folder / "tasks"), include_defaults=False),
        device="cpu",
        bootstrap_iters=0,
    )
    # A group is named laaciq_KIND, a task laaciq_KIND_CODE.
    return {name[-3:]: values for name, values in evaluation["results"].items() if name.count("_") == 2}


@needs_harness
@pytest.mark.parametrize("architecture", ["llama", "gpt2"])
@pytest.mark.parametrize("stored", [{"method": "rtn"}, {"method": "mse", "keep": 2.0, "embedding_bits": 4}])
def test_bits_per_byte_are_those_that_we_measure(folder, tmp_path, architecture, stored):
    model = save_tiny(architecture, tmp_path / "model")
    laaciq.quantize(model, out=tmp_path / "small", bits=3, group_size=16, texts=folder / "texts", **stored)
    ours = laaciq.evaluate(tmp_path / "small", against=model, texts=folder / "texts", served_bound=100)
    # The harness puts a start token in front of every text: the tokenizer must not put another.
    theirs = harness(folder, tmp_path / "small", "laaciq_bits", add_bos_token=False)
    assert {code: values["bits_per_byte,none"] for code, values in theirs.items()} == pytest.approx(
        {r.language: r.quantized.bits_per_byte for r in ours.languages}, rel=1e-5
    )


@needs_harness
def test_the_language_s_own_scales_are_used(folder, tmp_path):
    model = save_tiny("llama", tmp_path / "model")
    options = {"method": "adaptive", "bits": 2, "group_size": 16, "table_overhead": 4.0, "served_bound": 100.0}
    made = laaciq.quantize(model, out=tmp_path / "small", texts=folder / "texts", **options)
    assert made.plans.first.tables
    ours = laaciq.evaluate(tmp_path / "small", against=model, texts=folder / "texts", served_bound=100)
    shared = harness(folder, tmp_path / "small", "laaciq_bits", add_bos_token=False)
    for result in ours.languages:
        code = result.language
        with_tables = harness(folder, tmp_path / "small", f"laaciq_bits_{code}", add_bos_token=False, language=code)
        bits = with_tables[code]["bits_per_byte,none"]
        assert bits == pytest.approx(result.quantized.bits_per_byte, rel=1e-5)
        assert bits != shared[code]["bits_per_byte,none"]


@needs_harness
def test_a_language_of_a_model_that_has_none_is_refused(folder, tmp_path):
    with pytest.raises(LaaciqError, match="needs a laaciq checkpoint"):
        harness(folder, save_tiny("llama", tmp_path / "model"), "laaciq_bits", language="swa")


@needs_harness
def test_word_order_is_judged_by_a_model_that_knows_languages(folder):
    scores = harness(folder, laaciq.reference.path(), "laaciq_order")
    # By chance a quarter would be right; six passages per language.
    assert sum(values["acc,none"] for values in scores.values()) / len(scores) > 0.5


@needs_harness
def test_command_line(folder, tmp_path):
    laaciq.quantize(save_tiny("llama", tmp_path / "model"), out=tmp_path / "small", method="rtn", group_size=16)
    words = ["run", "--model", "laaciq", "--model_args", f"pretrained={tmp_path / 'small'}", "--device", "cpu"]
    words += ["--include_path", str(folder / "tasks"), "--tasks", "laaciq_bits_swa"]
    command = [sys.executable, "-m", "laaciq", "lm-eval", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "laaciq_bits_swa" in done.stdout


@pytest.mark.skipif(importlib.util.find_spec("lm_eval") is not None, reason="lm-eval is installed")
def test_without_the_harness_one_sentence_says_what_to_install():
    command = [sys.executable, "-m", "laaciq", "lm-eval", "run", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "pip install '.[lm-eval]'" in done.stderr
    assert len(done.stderr.splitlines()) == 1
