import json
import signal
import subprocess
import sys

import pytest
import torch
from rich.console import Console
from typer.testing import CliRunner

import laaciq.benchmark
from laaciq.benchmark import Bench, bench, why_dequantized
from laaciq.cli import app
from laaciq.cli.bench import bench_table
from laaciq.compression import quantize
from laaciq.errors import BadOption, BrokenModel, LaaciqError, TooLittleMemory
from laaciq.planning import TensorPlan
from tests.tiny import save_tiny

QUICK = ["--prompt-tokens", "8", "--new-tokens", "4", "--device", "cpu"]


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    root = tmp_path_factory.mktemp("bench")
    model = save_tiny("llama", root / "model")
    quantize(model, out=root / "checkpoint", group_size=16)
    return str(model), str(root / "checkpoint")


@pytest.fixture(scope="module")
def measured(pair):
    model, checkpoint = pair
    result = CliRunner().invoke(app, ["bench", checkpoint, "--against", model, *QUICK, "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_both_models_are_measured(measured, pair):
    model, checkpoint = pair
    for name, own in (("original", model), ("quantized", checkpoint)):
        found = measured[name]
        assert found["model"] == own
        assert found["prefill"] > 0
        assert found["decoding"] > 0
        assert found["weight_bytes"] > 0
        assert found["peak_bytes"] is None
    for name in ("prefill", "decoding", "weight_bytes"):
        assert measured["ratios"][name] == measured["quantized"][name] / measured["original"][name]
    assert (measured["device"], measured["dtype"]) == ("cpu", "float32")


def test_the_result_is_read_back_without_loss(measured):
    assert json.loads(Bench.model_validate(measured).model_dump_json()) == measured


def test_weights_are_counted_as_they_lie_in_memory(measured, pair):
    """In float32 layers hold codes of half a byte, scales of 2 bytes for 16 weights, and 4 bytes a dequantized weight."""
    blocks = 2 * (2 * 32 * 32 + 2 * 16 * 32 + 3 * 32 * 64)
    extra = blocks // 2 + 2 * blocks // 16
    assert measured["quantized"]["weight_bytes"] - measured["original"]["weight_bytes"] == extra


def test_kernels_are_told_with_the_reason(measured):
    kernels = measured["kernels"]
    assert (kernels["int4"], kernels["dequantized"]) == (0, 14)
    assert sum(kernels["reasons"].values()) == 14
    assert all("groups of 16" in reason for reason in kernels["reasons"])


def test_the_table(measured):
    console = Console(record=True, width=80)
    console.print(bench_table(Bench.model_validate(measured)))
    shown = console.export_text()
    for words in ("prefill, tokens/s", "decoding, tokens/s", "weights in memory, MB", "0 layers run on int4 kernels"):
        assert words in shown


def test_masked_models_decode_nothing(tmp_path):
    model = save_tiny("bert", tmp_path / "model")
    quantize(model, out=tmp_path / "c", group_size=16)
    found = bench(tmp_path / "c", against=model, device="cpu", prompt_tokens=8, new_tokens=4)
    assert found.original.prefill > 0
    assert found.quantized.decoding is found.ratios.decoding is None


def test_encoder_decoders_decode(tmp_path):
    model = save_tiny("mt5", tmp_path / "model")
    quantize(model, out=tmp_path / "c", group_size=16)
    found = bench(tmp_path / "c", against=model, device="cpu", prompt_tokens=8, new_tokens=4)
    assert found.quantized.decoding > 0


def test_a_model_that_is_not_ours(pair):
    model, _ = pair
    found = bench(model, against=model, device="cpu", prompt_tokens=8, new_tokens=4)
    assert found.kernels is None
    assert found.ratios.weight_bytes == 1


@pytest.mark.parametrize(
    ("command", "original"), [("laaciq run my/model --bits 3", "my/model"), ("laaciq run", "reference")]
)
@pytest.mark.parametrize("place", ["run/checkpoint", "run/checkpoint/swa"])
def test_a_run_records_the_original(tmp_path, monkeypatch, command, original, place):
    (tmp_path / place).mkdir(parents=True)
    (tmp_path / "run/run.json").write_text(json.dumps({"command": command}))
    monkeypatch.setattr(laaciq.benchmark, "_ask_child", lambda request, progress: request.against)
    assert bench(tmp_path / place) == original


@pytest.mark.parametrize(
    ("status", "kind", "words"),
    [
        (-signal.SIGILL, BadOption, "lacks an instruction that bfloat16 needs here: give --dtype float32"),
        (-signal.SIGKILL, TooLittleMemory, "lack of memory"),
        (-signal.SIGSEGV, LaaciqError, "died of SIGSEGV"),
        (1, LaaciqError, "failed .KeyError: 'x'."),
    ],
)
def test_a_child_that_dies_is_one_sentence(pair, monkeypatch, status, kind, words):
    """A program that dies the same way stands in for the child."""
    model, checkpoint = pair
    dying = f"import os; os.kill(os.getpid(), {-status})" if status < 0 else "{}['x']"
    real = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda command, **options: real([sys.executable, "-c", dying], **options))
    with pytest.raises(kind, match=words):
        bench(checkpoint, against=model, dtype="bfloat16")


def test_errors_of_the_child_are_its_own(pair):
    with pytest.raises(BrokenModel, match="no model at /nowhere"):
        bench(pair[1], against="/nowhere")


def plan(**changes):
    return TensorPlan(**{"name": "w", "shape": (64, 64), "bits": 4, "group_size": 64, "symmetric": True, **changes})


@pytest.mark.parametrize(
    ("changes", "dtype", "words"),
    [
        ({}, torch.float32, "need bfloat16; float32 was asked"),
        ({"bits": 3}, torch.float32, "need 4-bit codes; these have 3"),
        ({"keep": 1.0}, torch.bfloat16, "1 % are kept here"),
        ({"shape": (48, 64)}, torch.bfloat16, "do not fit groups of 64 in a layer of 48×64"),
    ],
)
def test_reasons(changes, dtype, words):
    assert words in why_dequantized(plan(**changes), dtype)


@pytest.mark.parametrize(
    "words",
    [
        ["--dtype", "int3"],
        ["--device", "moon"],
        ["--new-tokens", "1"],
        ["--batch", "0"],
        ["--against", "/nowhere"],
    ],
)
def test_bad_input_is_one_sentence_and_status_2(words, pair, tmp_path):
    model, checkpoint = pair
    against = [] if "--against" in words else ["--against", model]
    command = [sys.executable, "-m", "laaciq", "bench", checkpoint, *against, *words]
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.startswith("laaciq: ")
    assert len(result.stderr.splitlines()) == 1


def test_nothing_recorded(pair):
    with pytest.raises(BadOption, match="give the original with --against"):
        bench(pair[1])


def test_too_long_for_the_model(pair):
    with pytest.raises(BadOption, match=r"are 192, .* takes 128: ask for fewer"):
        bench(pair[1], against=pair[0])
