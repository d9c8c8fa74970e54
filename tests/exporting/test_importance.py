import re
from dataclasses import replace

import gguf
import numpy as np
import pytest
import torch

import laaciq
from laaciq.errors import BadOption
from laaciq.exporting.importance import TYPES, importance, tensor_types, write_importance, write_tensor_types
from laaciq.models import find_model, load
from laaciq.options import MeasureOptions, WeightOptions
from laaciq.planning.rules import make_plans
from laaciq.profiling.profile import profile_model
from tests.tiny import save_tiny

LANGUAGES = ["eng", "swa", "hin"]
NAME, GGUF_NAME = "model.layers.1.mlp.down_proj.weight", "blk.1.ffn_down.weight"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return load(find_model(save_tiny("llama", tmp_path_factory.mktemp("model"))), device="cpu")


@pytest.fixture(scope="module")
def texts():
    """Passages that the model reads in one piece; of one language more than of the others."""
    calibration = laaciq.read_split("builtin").calibration.select(LANGUAGES)
    short = {
        code: replace(p, texts=tuple(text[:40] for text in p.texts)).spread(3)
        for code, p in calibration.by_language.items()
    }
    return replace(calibration, by_language=short | {"eng": short["eng"].at([0])}, parallel=False)


@pytest.fixture(scope="module")
def profile(model, texts):
    return profile_model(model, texts, MeasureOptions(), outlier_kurtosis=50)


@torch.inference_mode()
def mean_squares(model, passages):
    """Directly: one passage at a time, without its start token."""
    seen = []
    layer = model.module.get_submodule(NAME.removesuffix(".weight"))
    handle = layer.register_forward_hook(lambda module, inputs, output: seen.append(inputs[0][0, 1:]))
    for text in passages.texts:
        ids = model.tokenizer(text, return_tensors="pt")["input_ids"]
        assert ids.shape[1] <= model.longest
        model.module(ids)
    handle.remove()
    return torch.cat(seen).double().square().mean(0).numpy(), sum(len(rows) for rows in seen)


def test_every_language_counts_alike_or_by_its_weight(model, texts, profile):
    english, swahili, hindi = (mean_squares(model, texts[code])[0] for code in LANGUAGES)
    alike = (english + swahili + hindi) / 3
    weighted = 0.75 * swahili + 0.25 * hindi
    # Sums in float32, stored in float32.
    np.testing.assert_allclose(importance(profile)[NAME], alike, rtol=1e-5)
    np.testing.assert_allclose(importance(profile, {"swa": 3, "hin": 1})[NAME], weighted, rtol=1e-5)
    assert not np.allclose(weighted, alike, rtol=0.01)


def test_the_file_holds_sums_and_counts(model, texts, profile, tmp_path):
    write_importance(profile, tmp_path / "all.gguf")
    reader = gguf.GGUFReader(tmp_path / "all.gguf")
    assert reader.fields["general.type"].contents() == "imatrix"
    assert reader.fields["imatrix.datasets"].contents() == [texts.name]
    result = {tensor.name: tensor.data for tensor in reader.tensors}
    assert len(result) == 2 * len(model.anatomy.linears)
    counts = result[f"{GGUF_NAME}.counts"]
    assert counts.item() == sum(mean_squares(model, texts[code])[1] for code in LANGUAGES)
    # What llama-quantize makes of it.
    np.testing.assert_allclose(result[f"{GGUF_NAME}.in_sum2"][0] / counts[0], importance(profile)[NAME], rtol=1e-6)


def test_a_language_that_was_not_profiled(profile):
    with pytest.raises(BadOption, match="the profile has no fra"):
        importance(profile, {"fra": 1.0})


def test_types_are_those_nearest_in_bits(model, tmp_path):
    options = WeightOptions(bits=3, group_size=64, attention_bits=6, protect=("1",), protect_bits=8)
    plan = make_plans(model.anatomy, options).first
    result = tensor_types(model, plan)
    assert result["blk.0.ffn_up.weight"] == "q3_K"
    assert result["blk.0.attn_q.weight"] == "q6_K"
    assert result["blk.1.ffn_up.weight"] == "q8_0"
    assert result["token_embd.weight"] == result["output.weight"] == "f16"
    write_tensor_types(model, plan, tmp_path / "types.txt")
    lines = [line.split("=") for line in (tmp_path / "types.txt").read_text().split()]
    # Every tensor is met by its own pattern alone.
    met = {name: [kind for pattern, kind in lines if re.search(pattern, name)] for name in result}
    assert met == {name: [kind] for name, kind in result.items()}


@pytest.mark.parametrize(("kind", "bits"), TYPES.items())
def test_bits_of_types_are_those_of_the_gguf_library(kind, bits):
    weights, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind.upper()]]
    assert 8 * size / weights == bits
