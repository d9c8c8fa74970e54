"""What the benchmark of scale promises: whole rows, honest verdicts, and a fit that says how far off it is."""

import sys

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

import laaciq
from benchmarks import scale
from benchmarks.scale_child import Memory
from benchmarks.scale_fit import all_fits, choose_fit
from benchmarks.scale_rows import AFTER, BEFORE, FAST, GPTQ, PEER, Announced, ScaleRow, StageTimes, read_rows
from benchmarks.scale_shapes import MEASURED, PREDICTED, find_shape
from benchmarks.scale_tables import GIB, print_tables, verdicts
from laaciq.models import dissect
from laaciq.scoring.operations import ModelShape
from laaciq.trials.estimate import Cost

SHAPE = "64x128x1"


def row(size, kind, seconds, *, device=20.0, host=10.0, failure=None, **more):
    memory = Memory(anonymous=int(host * GIB))
    known = {"command": [], "machine": "a GPU", "tokens": 1000, "languages": 36, "stages": {"measuring": seconds / 10}}
    known |= {"announcement": "", "announced_after": 0.0, "device_bytes": int(device * GIB)} | more
    return ScaleRow(size=size, kind=kind, seconds=seconds, memory=memory, failure=failure, **known)


def test_stages_are_timed_by_their_lines_and_one_within_another_is_part_of_it():
    times = StageTimes(began=100.0)
    lines = {
        105.0: "Quantizing: This takes about 3 min",
        110.0: "rounding, round-0: 0%, about 40 s",
        115.0: "measuring: 0 of 12",
        118.0: "measuring: done in 3 s",
        125.0: "rounding, round-0: 71%, 15 s, about 6 s left",
        130.0: "rounding, round-0: done in 20 s",
        131.0: "measuring: 0 of 12",
        135.0: "measuring: done in 4 s",
        136.0: "measuring: 0 of 12",
        137.0: "measuring: done in 1 s",
    }
    for moment, line in lines.items():
        times.read(line, moment)
    times.end(140.0)
    assert times.by_title == {BEFORE: 10.0, "rounding, round-0": 20.0, "measuring": 5.0, AFTER: 3.0}


@pytest.mark.parametrize(
    ("cost", "seconds"),
    [(Cost(75, 3 * GIB, 20 * GIB), 75), (Cost(400, 3 * GIB), 402), (Cost(7200, 3 * GIB, GIB), 7200)],
)
def test_what_laaciq_announces_is_read_back(cost, seconds):
    """Durations are announced in tenths of a minute beyond 90 seconds, and in whole minutes from ten on."""
    announced = Announced.of(f"Quantizing a model. This takes {cost} (tuning 20 s); existing results are kept.")
    assert announced == Announced(seconds=seconds, host_bytes=3 * GIB, device_bytes=cost.device_bytes)
    assert Announced.of("Written: out") is None


@pytest.mark.parametrize("size", [*MEASURED, *(shape.name for shape in PREDICTED)])
def test_a_size_is_what_its_name_says(size):
    shape = {**MEASURED, **{shape.name: shape for shape in PREDICTED}}[size]
    # Names are rounded, and 0.3B leaves out the embeddings.
    assert shape.parameters / 1e9 == pytest.approx(float(size[:-1]), rel=0.25)


def test_a_fit_finds_the_simplest_growth_and_its_error():
    linear = {shape: 10 + 5 * shape.parameters / 1e9 for shape in MEASURED.values()}
    fit = choose_fit(all_fits(linear))
    assert len(fit.terms) == 2
    assert fit.error < 1e-6
    assert fit(PREDICTED[0]) == pytest.approx(10 + 5 * PREDICTED[0].parameters / 1e9)
    cubic = {shape: 10 + shape.parameters / 1e9 + 3e-12 * shape.factorized for shape in MEASURED.values()}
    fit = choose_fit(all_fits(cubic))
    assert fit.terms[-1].name == "10¹² Σ inputs³"
    assert fit(PREDICTED[1]) == pytest.approx(10 + PREDICTED[1].parameters / 1e9 + 3e-12 * PREDICTED[1].factorized)
    assert choose_fit(all_fits(dict(list(linear.items())[:2]))) is None


def test_aims_are_reached_missed_or_not_measured(capsys):
    rows = [
        row("7B", FAST, 300.0, host=20.0),
        row("7B", GPTQ, 90.0),
        row("7B", PEER, 100.0),
        row("13B", FAST, 700.0, device=25.0),
        row("13B", GPTQ, 5.0, failure="status 1: out of memory"),
    ]
    lines = list(verdicts({(r.size, r.kind): r for r in rows if r.failure is None}))
    judged = {line.rpartition(": ")[0].split(": ")[0]: line.split()[-1] for line in lines}
    assert judged["- 7B, fast, seconds"] == "reached"
    assert judged["- 7B, GPTQ, time over llmcompressor's"] == "reached"
    assert judged["- 7B, fast, time over llmcompressor's GPTQ"] == "MISSED"
    assert judged["- 7B, fast, host memory over the 16-bit size"] == "MISSED"
    assert judged["- 13B, fast, GPU memory in GiB"] == "MISSED"
    assert judged["- 13B, fast, time over that of 7B"] == "MISSED"
    assert "not measured" in next(line for line in lines if "streamed, host" in line)
    print_tables(rows)
    assert "13B, `--method gptq` failed: status 1: out of memory" in capsys.readouterr().out


def test_larger_models_are_predicted_from_all_sizes(capsys):
    grown = {size: 10 + 5 * shape.parameters / 1e9 for size, shape in MEASURED.items()}
    print_tables([row(size, FAST, seconds) for size, seconds in grown.items()])
    printed = capsys.readouterr().out
    assert "within 0% of each size that is left out" in printed
    seventy, larger = (
        next(line for line in printed.splitlines() if line.startswith(f"| {shape.name} |")).strip("| ").split(" | ")
        for shape in PREDICTED
    )
    one = 10 + 5 * PREDICTED[0].parameters / 1e9
    # A tenth of it is measuring, over at most 36 languages.
    shares = (1, 0.9 + 0.1 / 8, 0.9 + 0.1 / 36, 64, 8, 1)
    for cell, share in zip(seventy[3:], shares, strict=True):
        least, most = (float(end.split()[0]) * {"min": 60, "h": 3600}[end.split()[1]] for end in cell.split(" to "))
        # As precisely as it is printed.
        assert least - 180 <= one * share <= most + 180
    assert seventy[3] == seventy[8]
    assert float(larger[2]) > float(seventy[2])


def test_what_larger_models_need_is_what_laaciq_asks_for():
    """A shape costs what its model does."""
    for size in ("0.3B", "1.1B"):
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(find_shape(size).config())
        assert find_shape(size).costed() == ModelShape.of("causal", dissect(model))


def test_rows_are_measured_once_and_failures_are_tried_again(tmp_path, monkeypatch, capsys):
    texts = laaciq.read_texts()
    (tmp_path / "texts").mkdir()
    for code in ("eng", "swa"):
        short = "\n".join(text[:40] for text in texts[code].texts[:20])
        (tmp_path / "texts" / f"{code}.txt").write_text(short, encoding="utf-8")
    out = tmp_path / "out"

    def run(*words):
        words = ["--out", str(out), "--texts", str(tmp_path / "texts"), *words]
        monkeypatch.setattr(sys, "argv", ["scale", *words])
        scale.main()
        return {r.kind: r for r in read_rows(out)}

    first = run("--sizes", SHAPE, "--rows", "gptq", "--keep-models")
    measured = first[GPTQ]
    assert measured.failure is None
    assert measured.seconds >= sum(measured.stages.values()) > measured.stages["rounding"] > 0
    assert measured.memory.anonymous > find_shape(SHAPE).bytes
    assert measured.announced is not None
    config = AutoConfig.from_pretrained(out / "models" / SHAPE)
    loaded = AutoModelForCausalLM.from_pretrained(out / "models" / SHAPE)
    assert config.vocab_size == 32_000
    assert sum(parameter.numel() for parameter in loaded.parameters()) == find_shape(SHAPE).parameters
    monkeypatch.setattr(scale.Benchmark, "_words", lambda *_: ["laaciq", "quantize", "nowhere", "--out", "out"])
    both = run("--sizes", SHAPE, "--rows", "gptq,fast")
    assert both[GPTQ] == measured
    assert "nowhere" in both[FAST].failure
    assert not (out / "models" / SHAPE).exists()
    assert "FAILED: status 2" in capsys.readouterr().out
    monkeypatch.setattr(scale.Benchmark, "_words", lambda *_: ["laaciq", "methods"])
    assert run("--sizes", SHAPE, "--rows", "gptq,fast")[FAST].failure is None
