import json
import shutil
import subprocess
import sys
from itertools import cycle

import pytest

import laaciq
from laaciq.engine.progress import Progress
from laaciq.errors import BadOption, OutputConflict, TooLittleMemory, UnknownLanguage
from laaciq.options import RunOptions
from laaciq.planning.decision import Decision
from laaciq.profiling.results import Profile
from tests.short_texts import write_short_texts
from tests.tiny import save_tiny

FEW = ["eng", "swa", "hin"]


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    return write_short_texts(tmp_path_factory.mktemp("texts"), FEW)


STORED = [
    {"method": "rtn", "bits": 3},
    {"method": "planned", "budget": 6.0, "budget_for": "model", "baseline": False},
    {"method": "mse", "keep": 2.0},
    {"method": "adaptive", "table_overhead": 2.0},
]
ELSEWHERE = """
import json, sys, laaciq
texts, *pairs = sys.argv[1:]
for model, checkpoint in zip(pairs[::2], pairs[1::2]):
    evaluation = laaciq.evaluate(checkpoint, against=model, texts=texts, served_bound=100)
    print(json.dumps({r.language: r.loss.value for r in evaluation.languages}))
"""


def write_plan_of_all_widths(plan, path):
    """The same plan with its tensors in 2, 3, 4, 5 and 7 bits in turn."""
    tensors = [t.model_copy(update={"bits": b}) for t, b in zip(plan.tensors, cycle((2, 3, 4, 5, 7)), strict=False)]
    path.write_text(plan.model_copy(update={"tensors": tensors}).model_dump_json())
    return str(path)


def test_a_checkpoint_loses_as_much_in_another_process_as_it_did_simulated(tmp_path, texts):
    """Of several architectures, and of the reference model without planning, which takes its time on a model of some size."""
    words, simulated = [], []

    def simulate(model, out, **options):
        result = laaciq.run(model, texts=str(texts), served_bound=100.0, out=out, **options)
        simulated.append({r.language: r.loss.value for r in result.evaluation.languages})
        words.extend([str(model), str(out / "checkpoint")])
        return result

    for architecture in ("reference", "gpt2", "bloom", "xglm", "mt5"):
        known = architecture == "reference"
        model = "reference" if known else save_tiny(architecture, tmp_path / architecture)
        for number, entry in enumerate(STORED):
            planned = entry["method"] == "planned"
            if planned and known:
                continue
            options = entry if planned else {"group_size": 64 if known else 16, **entry}
            result = simulate(model, tmp_path / f"{architecture}-{number}", **options)
            if number == 0:
                plan = write_plan_of_all_widths(result.plan, tmp_path / f"{architecture}.json")
                mixed = simulate(model, tmp_path / f"{architecture}-widths", plan=plan)
                assert {tensor.bits for tensor in mixed.plan.tensors} == {2, 3, 4, 5, 7}
    command = [sys.executable, "-c", ELSEWHERE, str(texts), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    for losses, line, name in zip(simulated, done.stdout.splitlines(), words[1::2], strict=True):
        # Products in another order (Conv1D) differ in the last digits of float32.
        assert json.loads(line) == pytest.approx(losses, rel=1e-3, abs=1e-6), name


def test_every_language_is_measured_under_its_own_checkpoint(tmp_path, texts):
    model = save_tiny("llama", tmp_path / "model")
    options = {"texts": str(texts), "group_size": 16, "bits": 2, "served_bound": 100.0}
    result = laaciq.run(model, out=tmp_path / "run", method="effective", separate=True, **options)
    assert set(result.plans.plans) == set(FEW)
    for code in FEW:
        evaluated = laaciq.evaluate(
            tmp_path / "run/checkpoint" / code, against=model, texts=texts, languages=[code], served_bound=100
        )
        measured = next(r for r in result.evaluation.languages if r.language == code)
        assert evaluated.languages[0].loss.value == pytest.approx(measured.loss.value, rel=1e-6)


def test_everything_is_on_disk_and_read_back_without_loss(tmp_path, texts):
    model = save_tiny("llama", tmp_path / "model")
    out = tmp_path / "run"
    result = laaciq.run(model, texts=str(texts), served_bound=100, out=out)
    decided = Decision.model_validate_json((out / "plans.json").read_text())
    assert (decided.plans, decided.planning) == (result.plans, result.planning)
    assert type(result.baseline).model_validate_json((out / "baseline/evaluation.json").read_text()) == result.baseline
    assert type(result.evaluation).model_validate_json((out / "evaluation.json").read_text()) == result.evaluation
    assert type(result.theory).model_validate_json((out / "theory.json").read_text()) == result.theory
    # All calibration text, beside the few passages that show which languages are served.
    profile = Profile.read(out / "profile.json")
    assert not profile.sampled and result.theory.passages == min(r.passages for r in profile.languages)
    for report in ("report.md", "report.html"):
        text = (out / report).read_text()
        assert "Swahili" in text and "no block is an outlier block" in text
    assert len(result.evaluation.frame()) == len(FEW)


def stamps(out):
    files = [*out.glob("trials/run/test/*.json"), out / "plans.json", out / "checkpoint/model.safetensors"]
    return {path.name: path.stat().st_mtime_ns for path in files}


def test_only_what_changed_is_computed_again(tmp_path, texts):
    model, out = save_tiny("llama", tmp_path / "model"), tmp_path / "run"
    options = {"method": "rtn", "texts": str(texts), "served_bound": 100.0, "out": out}
    first = laaciq.run(model, languages=["eng", "swa"], **options)
    before = stamps(out)
    assert laaciq.run(model, languages=["eng", "swa"], **options) == first
    assert stamps(out) == before
    with pytest.raises(
        OutputConflict, match=r"finished 'laaciq run .*--languages eng,swa .*this is .*--languages eng,swa,hin"
    ):
        laaciq.run(model, languages=FEW, **options)
    assert stamps(out) == before
    laaciq.run(model, languages=FEW, overwrite=True, **options)
    added = stamps(out)
    assert {name for name in added if added[name] != before.get(name)} == {"hin.json"}
    laaciq.run(model, languages=FEW, bits=3, overwrite=True, **options)
    assert all(stamps(out)[name] != stamp for name, stamp in added.items())


def test_a_changed_model_is_noticed(tmp_path, texts):
    out = tmp_path / "run"
    options = {"method": "rtn", "texts": str(texts), "served_bound": 100.0, "out": out}
    first = laaciq.run(save_tiny("llama", tmp_path / "model"), **options)
    second = laaciq.run(save_tiny("llama", tmp_path / "model", seed=1), **options)
    assert first.evaluation.languages != second.evaluation.languages


def test_a_model_against_itself_loses_nothing(tmp_path, texts):
    model = save_tiny("llama", tmp_path / "model")
    evaluation = laaciq.evaluate(model, against=model, texts=texts, served_bound=100)
    assert all(r.degradation.value == 0 and r.top_agreement == 1 for r in evaluation.languages)
    assert not evaluation.disparity.beyond_noise


def test_numeric_noise_is_reported_apart(tmp_path, texts):
    model = save_tiny("llama", tmp_path / "model")
    result = laaciq.run(
        model, texts=str(texts), served_bound=100, method="rtn", numeric_check=True, out=tmp_path / "run"
    )
    assert (result.numeric_noise.precision, result.numeric_noise.other) == ("float32", "float64")
    # Float32 has seven digits; a loss that matters has its first in the second or third.
    assert 0 < result.numeric_noise.largest < 1e-4


def test_models_with_other_tokens_are_no_pair(tmp_path, texts):
    with pytest.raises(BadOption, match="different tokenizers"):
        laaciq.evaluate(
            save_tiny("qwen2", tmp_path / "a"),
            against=save_tiny("llama", tmp_path / "b"),
            texts=texts,
            served_bound=100,
        )


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"bits": 9}, BadOption, "9 bits are not supported"),
        ({"group_size": 0}, BadOption, "group size 0"),
        ({"method": "rnt"}, BadOption, "did you mean 'rtn'"),
        ({"keep": 20.0}, BadOption, "20 % of the weights cannot stay in 16 bits"),
        ({"languages": ["eng", "xyz"]}, UnknownLanguage, "unknown language 'xyz'"),
        ({"languages": ["eng", "isl"]}, UnknownLanguage, "no text in Icelandic"),
        ({"bit": 4}, BadOption, "did you mean 'bits'"),
        ({"window": "wide"}, BadOption, "--window cannot be 'wide'"),
        ({"device": "tpu"}, BadOption, "auto, cpu or cuda"),
    ],
)
def test_bad_options_are_refused_before_anything_is_written(tmp_path, options, error, says):
    with pytest.raises(error, match=says):
        laaciq.run("reference", out=tmp_path / "run", **options)
    assert not (tmp_path / "run").exists()


def test_an_output_folder_that_holds_something_else(tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(OutputConflict):
        laaciq.run("reference", out=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_test_text_never_reaches_the_optimiser(tmp_path, texts):
    """Another test text, everything else the same: the plan, its weights and all that it was chosen by are the same to the last digit."""
    model = save_tiny("llama", tmp_path / "model")
    results = []
    for name in ("one", "other"):
        for part in ("calibration", "test"):
            folder = tmp_path / name / part
            folder.mkdir(parents=True)
            for code in FEW:
                lines = (texts / f"{code}.txt").read_text().splitlines()
                changed = lines if part == "calibration" else [f"{line} {name}" for line in lines]
                (folder / f"{code}.txt").write_text("\n".join(changed))
        results.append(laaciq.run(model, texts=str(tmp_path / name), served_bound=100, out=tmp_path / f"{name}-run"))
    first, second = results
    assert first.planning == second.planning
    assert first.plans == second.plans
    assert first.evaluation.languages != second.evaluation.languages


def test_the_baseline_stands_beside_a_plan_and_is_no_smaller(tmp_path, texts):
    model = save_tiny("llama", tmp_path / "model")
    result = laaciq.run(model, texts=str(texts), served_bound=100, out=tmp_path / "run")
    stored = Decision.model_validate_json((tmp_path / "run/baseline/plans.json").read_text()).plans.first
    assert list(stored.weights) == ["eng"]
    assert result.plan.size.block_bytes <= stored.size.block_bytes
    assert {r.language for r in result.baseline.languages} == set(FEW)
    assert result.baseline.quantized in (tmp_path / "run/report.html").read_text()
    without = laaciq.run(
        model, texts=str(texts), served_bound=100, baseline=False, out=tmp_path / "run", overwrite=True
    )
    assert without.baseline is None
    assert not (tmp_path / "run/baseline/evaluation.json").exists()


@pytest.fixture(scope="module")
def generated(tmp_path_factory, texts):
    """A model, options, and the result of a run with them in the folder `run` beside the model."""
    place = tmp_path_factory.mktemp("generated")
    model, options = save_tiny("llama", place / "model"), {"texts": str(texts), "served_bound": 100, "generate": True}
    return model, options, laaciq.run(model, out=place / "run", **options)


@pytest.mark.parametrize("missing", ["baseline/checkpoint", "baseline/trials", "generation/swa.json", None])
def test_up_to_date_is_said_only_where_nothing_is_left_to_do(tmp_path, generated, missing):
    """A missing baseline, or continuations of one language, are work too."""
    model, options, first = generated
    shutil.copytree(model.parent / "run", tmp_path / "run")

    class RecordedProgress(Progress):
        def __init__(self):
            self.sentences = []

        def say(self, text):
            self.sentences.append(text)

    if missing == "baseline/trials":
        (tmp_path / "run/trials/baseline/test/swa.json").unlink()
    elif missing is not None:
        path = tmp_path / "run" / missing
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    progress = RecordedProgress()
    assert laaciq.run(model, out=tmp_path / "run", progress=progress, **options) == first
    assert any("up to date" in sentence for sentence in progress.sentences) == (missing is None)


def test_draws_of_calibration_text_show_how_far_losses_move(tmp_path, texts):
    model = save_tiny("llama", tmp_path / "model")
    options = {"method": "gptq", "texts": str(texts), "served_bound": 100, "group_size": 16, "bits": 3}
    result = laaciq.run(model, draws=3, out=tmp_path / "run", **options)
    alone = laaciq.run(model, out=tmp_path / "alone", **options)
    assert result.evaluation == alone.evaluation and alone.spread is None
    assert result.spread.draws == 3
    for language in result.evaluation.languages:
        losses = result.spread.by_language[language.language]
        assert losses[0] == language.degradation.value
        assert len(set(losses)) == 3  # other text, other codes
    assert result.spread.worst == [max(d[k] for d in result.spread.by_language.values()) for k in range(3)]
    assert "Over 3 draws of calibration text" in (tmp_path / "run/report.md").read_text()
    assert laaciq.run(model, draws=3, out=tmp_path / "run", **options) == result


def test_too_little_memory_is_told_before_loading(tmp_path, texts, monkeypatch):
    monkeypatch.setattr("laaciq.trials.estimate.free_memory", lambda device: 100 * 2**20)
    with pytest.raises(TooLittleMemory, match=r"needs about .* GB of memory and 0\.1 GB are free"):
        laaciq.run(save_tiny("llama", tmp_path / "model"), texts=str(texts), out=tmp_path / "run")


def test_the_command_names_what_differs_from_the_defaults():
    assert RunOptions().command == "laaciq run"
    options = RunOptions(
        model="a b",
        bits=3,
        symmetric=False,
        languages=("eng", "swa"),
        calibration_languages=("eng",),
        protect=("0,11", "swa=3"),
        generate=True,
        group_size="channel",
    )
    expected = "laaciq run 'a b' --languages eng,swa --bits 3 --group-size channel --affine"
    expected += " --protect 0,11 --protect swa=3 --calibration-languages eng --generate"
    assert options.command == expected
