"""Every command that writes leaves alone what it did not write, one process at a time writes, and what is refused changes nothing."""

import os

import pytest

import laaciq
from laaciq.engine.lock import FolderLock
from laaciq.errors import BadOption, OutputConflict
from tests.tiny import save_tiny

SHORT = {"languages": ["eng", "swa"], "served_bound": 100.0}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save_tiny("llama", tmp_path_factory.mktemp("model") / "model")


@pytest.fixture(scope="module")
def checkpoint(model, tmp_path_factory):
    out = tmp_path_factory.mktemp("checkpoint") / "q"
    laaciq.quantize(model, out=out, method="rtn", group_size=16)
    return out


# Each command with a folder to write to. That of `plan` lies beside its file.
WRITERS = {
    "run": lambda model, checkpoint, out, **o: laaciq.run(model, out=out, **SHORT, **o),
    "plan": lambda model, checkpoint, out, **o: laaciq.plan(model, out=out.with_suffix(""), budget=4.5, **SHORT, **o),
    "quantize": lambda model, checkpoint, out, **o: laaciq.quantize(model, out=out, method="rtn", group_size=16, **o),
    "evaluate": lambda model, checkpoint, out, **o: laaciq.evaluate(checkpoint, against=model, out=out, **SHORT, **o),
    "profile": lambda model, checkpoint, out, **o: laaciq.profile(model, out=out, languages=["eng"], **o),
    "compare": lambda model, checkpoint, out, **o: laaciq.compare(model, out=out, methods=["rtn"], **SHORT, **o),
    "sensitivity": lambda model, checkpoint, out, **o: laaciq.sensitivity(model, out=out, **SHORT, **o),
    "sweep": lambda model, checkpoint, out, **o: laaciq.sweep(model, out=out, **SHORT, **o),
    "gateway": lambda model, checkpoint, out, **o: laaciq.gateway(model, out=out, protect=1, **SHORT, **o),
    "mixture": lambda model, checkpoint, out, **o: laaciq.mixture(model, out=out, **SHORT, **o),
    "export": lambda model, checkpoint, out, **o: laaciq.export(checkpoint, format="compressed-tensors", out=out, **o),
    "imatrix": lambda model, checkpoint, out, **o: laaciq.imatrix(model, out=out, **SHORT, **o),
    "tasks": lambda model, checkpoint, out, **o: laaciq.tasks(out, languages=["eng"], **o),
}


def put(path, text="years of work"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def snapshot(folder):
    return {
        path: os.readlink(path) if path.is_symlink() else path.is_file() and path.read_text()
        for path in folder.rglob("*")
    }


def a_run_of_the_user_s(out):
    put(out / "run.json", '{"command": "laaciq run", "finished": true}')
    put(out / "checkpoint/model.safetensors")


def names_that_we_write(out):
    for name in ("config.json", "report.html", "recipe.yaml", "keys/run.json.key", "trials/run/test/eng.json"):
        put(out / name)


def half_written_files(out):
    put(out / ".partial-mine")


def a_link_within(out):
    put(out.parent / "elsewhere/thesis.txt")
    out.mkdir()
    (out / "trials").symlink_to(out.parent / "elsewhere")


def a_dangling_link(out):
    out.symlink_to(out.parent / "nowhere")


def a_loop(out):
    out.symlink_to(out)


def a_file(out):
    put(out)


FOREIGN = [a_run_of_the_user_s, names_that_we_write, half_written_files, a_link_within, a_dangling_link, a_loop, a_file]


@pytest.mark.parametrize("foreign", FOREIGN, ids=lambda foreign: foreign.__name__)
@pytest.mark.parametrize("command", WRITERS)
def test_what_others_wrote_is_refused_and_left_alone(model, checkpoint, tmp_path, command, foreign):
    out = tmp_path / "plan.json.parts"
    foreign(out)
    before = snapshot(tmp_path)
    for overwrite in (False, True):
        with pytest.raises(OutputConflict, match=r": (choose|make)"):
            WRITERS[command](model, checkpoint, out, overwrite=overwrite)
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("command", WRITERS)
def test_a_folder_that_is_written_to_is_refused_by_the_name_of_the_writer(
    model, checkpoint, tmp_path, monkeypatch, command
):
    monkeypatch.setattr("laaciq.engine.lock._PATIENCE", 0.0)
    out = tmp_path / "plan.json.parts"
    out.mkdir()
    lock = FolderLock(out, "laaciq sweep --bits 3")
    before = snapshot(tmp_path)
    with pytest.raises(OutputConflict, match=r"is in use by 'laaciq sweep --bits 3', process \d+ on "):
        WRITERS[command](model, checkpoint, out)
    assert snapshot(tmp_path) == before
    lock.release()


def test_what_fails_before_its_first_result_leaves_nothing(model, tmp_path):
    other = save_tiny("qwen2", tmp_path / "other")
    with pytest.raises(BadOption, match="different tokenizers"):
        laaciq.evaluate(other, against=model, out=tmp_path / "out", **SHORT)
    assert not (tmp_path / "out").exists()
