import json
import sys

import pytest
from rich.console import Console
from typer.testing import CliRunner

from laaciq.cli import app, main
from laaciq.cli.bench import bench_table
from laaciq.commands.quantize import quantize
from laaciq.speed import Bench
from tests.tiny import save_tiny


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    root = tmp_path_factory.mktemp("bench")
    model = save_tiny("llama", root / "model")
    quantize(model, out=root / "checkpoint", method="rtn", group_size=16)
    return str(model), str(root / "checkpoint")


@pytest.fixture(scope="module")
def measured(pair):
    model, checkpoint = pair
    quick = ["--prompt-tokens", "8", "--new-tokens", "4", "--device", "cpu", "--json"]
    result = CliRunner().invoke(app, ["bench", checkpoint, "--against", model, *quick])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def table(result):
    console = Console(record=True, width=80)
    console.print(bench_table(Bench.model_validate(result)))
    return " ".join(console.export_text().split())


def test_both_models_are_measured(measured, pair):
    for name, entry in zip(("original", "quantized"), pair, strict=True):
        result = measured[name]
        assert result["model"] == entry
        assert result["prefill"] > 0
        assert result["decoding"] > 0
        assert result["peak_bytes"] is None
    for name in ("prefill", "decoding", "weight_bytes"):
        assert measured["ratios"][name] == measured["quantized"][name] / measured["original"][name]
    assert (measured["device"], measured["dtype"]) == ("cpu", "float32")


def test_the_result_is_read_back_without_loss(measured):
    assert json.loads(Bench.model_validate(measured).model_dump_json()) == measured


def test_weights_are_counted_as_they_lie_in_memory(measured):
    """In float32 layers hold codes of half a byte, scales of 2 bytes for 16 weights, and 4 bytes per dequantized weight."""
    blocks = 2 * (2 * 32 * 32 + 2 * 16 * 32 + 3 * 32 * 64)
    extra = blocks // 2 + 2 * blocks // 16
    assert measured["quantized"]["weight_bytes"] - measured["original"]["weight_bytes"] == extra


def test_kernels_come_with_the_reason(measured):
    kernels = measured["kernels"]
    assert (kernels["int4"], kernels["dequantized"]) == (0, 14)
    assert sum(kernels["reasons"].values()) == 14
    assert all("groups of 16" in reason for reason in kernels["reasons"])


def test_the_table(measured):
    shown = table(measured)
    for words in ("prefill, tokens/s", "decoding, tokens/s", "weights in memory, MB", "0 layers run on Triton kernels"):
        assert words in shown
    assert "peak" not in shown
    assert "CUDA" not in shown


def test_the_table_on_cuda_says_when_layers_dequantize(measured):
    kernels = {"triton": 14, "int4": 0, "dequantized": 0, "reasons": {}}
    for few_tokens, words in ((32, "more than 32 tokens at a time"), (1, "more than one token at a time")):
        shown = table(measured | {"device": "NVIDIA H200", "kernels": kernels | {"few_tokens": few_tokens}})
        assert "14 layers run on Triton kernels" in shown
        assert words in shown


def test_the_table_has_compiled_decoding_or_the_reason(measured):
    assert "compiled" not in table(measured)
    speeds = {name: measured[name] | {"compiled_decoding": 10.0} for name in ("original", "quantized")}
    shown = table(measured | speeds | {"ratios": measured["ratios"] | {"compiled_decoding": 1.0}})
    assert "decoding compiled, tokens/s 10.0 10.0 1.00" in shown
    assert "not compiled: graph break." in table(measured | {"not_compiled": {"m": "graph break"}})


def test_the_table_of_a_model_that_is_not_ours(measured):
    assert "Not a laaciq checkpoint" in table(measured | {"kernels": None})


def test_an_error_of_the_child_is_one_sentence_and_status_2(pair, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["laaciq", "bench", pair[1], "--against", "/nowhere"])
    with pytest.raises(SystemExit, match="2"):
        main()
    printed = capsys.readouterr()
    assert printed.out == ""
    # Progress comes before.
    assert printed.err.splitlines()[-1].startswith("laaciq: no model at '/nowhere'")
