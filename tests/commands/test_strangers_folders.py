"""A model, texts or a run from a stranger makes us read and write nothing outside the folders that the user named."""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path
from urllib.parse import quote

import pytest

import laaciq
from laaciq.engine.file_list import FILE_LIST
from laaciq.engine.store import RunFolder
from laaciq.errors import BrokenModel, BrokenTexts, LaaciqError
from laaciq.models import find_model, load
from laaciq.quantization.plan import PlanSet
from tests.report.test_report import PLAN
from tests.tiny import save_tiny


@pytest.fixture(scope="module")
def complete(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny("llama", tmp_path_factory.mktemp("complete"))


@pytest.fixture
def model(complete: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(complete, tmp_path / "model"))


@pytest.fixture
def secret(complete: Path, tmp_path: Path) -> Path:
    """A folder that nobody named, with a complete model in it."""
    return Path(shutil.copytree(complete, tmp_path / "secret"))


READ = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "generation_config.json")
OTHERS = (
    "vocab.txt",
    "merges.txt",
    "spiece.model",
    "chat_template.jinja",
    "additional_chat_templates/a.jinja",
    "x.txt",
)


@pytest.mark.parametrize("name", [*READ, *OTHERS])
def test_a_model_with_a_link_out_of_its_folder_is_refused(model: Path, secret: Path, name: str) -> None:
    target = secret / (name if name in READ else "config.json")
    (model / name).parent.mkdir(exist_ok=True)
    (model / name).unlink(missing_ok=True)
    (model / name).symlink_to(target)
    with pytest.raises(BrokenModel, match="link that leads out of its folder"):
        load(find_model(model))


def test_links_of_the_hub_s_cache_are_followed(complete: Path, tmp_path: Path) -> None:
    """A snapshot there holds links to blobs beside it."""
    repository = tmp_path / "models--org--name"
    snapshot = repository / "snapshots/0123"
    snapshot.mkdir(parents=True)
    (repository / "blobs").mkdir()
    for number, file in enumerate(path for path in complete.iterdir() if path.is_file()):
        blob = repository / f"blobs/{number}"
        shutil.copy(file, blob)
        (snapshot / file.name).symlink_to(blob)
    load(find_model(snapshot))


@pytest.mark.parametrize("shard", ["../secret/model.safetensors", "/etc/passwd", "/dev/zero", 7, None, "a\0b"])
def test_shards_outside_the_folder_are_refused(model: Path, secret: Path, shard: object) -> None:
    index = {"metadata": {}, "weight_map": {"model.embed_tokens.weight": shard}}
    (model / "model.safetensors").unlink()
    (model / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(BrokenModel):
        load(find_model(model))


@pytest.mark.parametrize("entry", ["init_inputs", "fast_tokenizer_files"])
def test_a_tokenizer_that_names_files_is_refused(model: Path, secret: Path, entry: str) -> None:
    settings = json.loads((model / "tokenizer_config.json").read_text())
    names = [str(secret / "tokenizer.json"), "../secret/tokenizer.4.0.json"]
    (model / "tokenizer_config.json").write_text(json.dumps(settings | {entry: names}))
    with pytest.raises(BrokenModel, match="name files elsewhere"):
        load(find_model(model))


@pytest.mark.parametrize("name", ["eng.txt", "documents.txt"])
def test_texts_with_a_link_out_of_their_folder_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "secret").write_text("secret\n")
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "swa.txt").write_text("habari\n")
    (folder / name).symlink_to(tmp_path / "secret")
    with pytest.raises(BrokenTexts, match="link that leads out of its folder"):
        laaciq.read_texts(folder)


@pytest.mark.parametrize("name", ["..", "../checkpoint", "/etc", "a/b", "a\0b"])
def test_plans_name_no_folder_elsewhere(name: str) -> None:
    with pytest.raises(ValueError, match="no name of a checkpoint"):
        PlanSet(plans={name: PLAN})


@pytest.mark.parametrize("outside", ["../victim", "{place}/victim", "link/victim"])
def test_a_run_s_folder_cannot_have_other_files_removed(tmp_path: Path, outside: str) -> None:
    """It claims to replace another run, and lists a file elsewhere as a result of that."""
    (tmp_path / "elsewhere").mkdir()
    victims = [tmp_path / "victim", tmp_path / "elsewhere/victim"]
    for victim in victims:
        victim.write_text("x")
    run = tmp_path / "run"
    store = RunFolder(run, description={"command": "laaciq run"})
    store.write("mine.txt", "x")
    store.close()
    marker = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(marker | {"replacing": True}))
    (run / "link").symlink_to(tmp_path / "elsewhere")
    name = outside.format(place=tmp_path)
    (run / f"keys/{quote(name, safe='')}.key").write_text("0 0")
    with (run / FILE_LIST).open("a") as listed:
        listed.write(f"{quote(name)}\n{quote('keys/' + quote(name, safe='') + '.key')}\n")
    with contextlib.suppress(LaaciqError):
        again = RunFolder(run, description={"command": "laaciq run"})
        again.finish()
        again.close()
    assert all(victim.exists() for victim in victims)


@pytest.mark.parametrize("name", ["trials", "checkpoint", "evaluation.json"])
def test_nothing_is_written_through_links_of_a_run_s_folder(tmp_path: Path, name: str) -> None:
    (tmp_path / "elsewhere").mkdir()
    run = tmp_path / "run"
    store = RunFolder(run, description={"command": "laaciq run"})
    store.write("mine.txt", "x")
    store.close()
    (run / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(LaaciqError, match="did not write"):
        RunFolder(run, description={"command": "laaciq run"})
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.parametrize("file", ["evaluation.json", "run.json"])
def test_links_in_a_run_s_folder_are_not_followed(tmp_path: Path, file: str) -> None:
    (tmp_path / "secret.json").write_text('{"laaciq": "0", "finished": true, "command": "laaciq run"}')
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / file).symlink_to(tmp_path / "secret.json")
    with pytest.raises(LaaciqError, match="link that leads out of its folder"):
        laaciq.check(tmp_path / "run", max_degradation=0.1)
