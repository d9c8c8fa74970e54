"""A checkpoint from a stranger runs nothing: no class of its own, no pickle, no kernel, whatever its files say."""

from __future__ import annotations

import json
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import laaciq
from laaciq.errors import BrokenModel, LaaciqError
from laaciq.exporting.gguf import write_gguf
from laaciq.models import find_model, load
from laaciq.models.loading import outline, skeleton
from tests.tiny import save_tiny

_CLASSES = ("AutoConfig", "AutoModel", "AutoModelForCausalLM", "AutoTokenizer")


def edit(path: Path, **entries: object) -> None:
    content = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(content | entries))


@pytest.fixture
def ran(tmp_path: Path) -> Path:
    """The file that appears if code of the checkpoint is run."""
    return tmp_path / "ran"


@pytest.fixture
def hostile(tmp_path: Path, ran: Path) -> Path:
    """A complete model with code in every place where transformers would take it from, were it trusted."""
    folder = save_tiny("llama", tmp_path / "model")
    code = f"open({str(ran)!r}, 'w')\nclass Evil:\n    pass\ndef generate(**options):\n    pass\n"
    (folder / "custom_generate").mkdir()
    for name in ("evil.py", "__init__.py", "modeling_evil.py", "custom_generate/generate.py", "setup.py"):
        (folder / name).write_text(code)
    classes = {name: "evil.Evil" for name in _CLASSES}
    edit(
        folder / "config.json", auto_map=classes, trust_remote_code=True, custom_pipelines={"x": {"impl": "evil.Evil"}}
    )
    edit(folder / "tokenizer_config.json", auto_map={"AutoTokenizer": ["evil.Evil", None]}, trust_remote_code=True)
    edit(folder / "generation_config.json", custom_generate=str(folder), trust_remote_code=True)
    return folder


def test_code_beside_a_known_architecture_is_not_run(hostile: Path, ran: Path) -> None:
    folder = find_model(hostile)
    model = load(folder)
    skeleton(folder)
    outline(folder)
    ids = torch.tensor([[1, 2, 3]])
    model.module.generate(ids, max_new_tokens=2, do_sample=False)
    assert not ran.exists()


@pytest.mark.parametrize("file", ["config.json", "tokenizer_config.json"])
def test_what_needs_code_is_refused_and_nobody_is_asked(hostile: Path, ran: Path, file: str) -> None:
    """In a process, because transformers asks on standard input whether to run the code; here somebody would say yes."""
    entry = {"model_type": "evil"} if file == "config.json" else {"tokenizer_class": "Evil"}
    edit(hostile / file, **entry)
    program = """
import sys
from laaciq.errors import LaaciqError
from laaciq.models import find_model, load
from laaciq.models.loading import outline, skeleton
for read in (load, skeleton, outline):
    try:
        read(find_model(sys.argv[1]))
    except LaaciqError:
        print("refused")
"""
    child = subprocess.run(
        [sys.executable, "-c", program, hostile], input="y\n" * 20, capture_output=True, text=True, check=False
    )
    assert not ran.exists()
    assert child.returncode == 0, child.stderr
    assert "[y/N]" not in child.stdout
    assert "refused" in child.stdout or file == "tokenizer_config.json"


def test_checkpoints_and_exports_name_no_code(hostile: Path, ran: Path, tmp_path: Path) -> None:
    """Whoever trusts our output must not run code that a stranger named in the original."""
    laaciq.quantize(hostile, out=tmp_path / "quantized", method="rtn", bits=4, group_size=16)
    laaciq.export(tmp_path / "quantized", format="compressed-tensors", out=tmp_path / "exported")
    write_gguf(hostile, tmp_path / "gguf")
    assert not ran.exists()
    for folder in ("quantized", "exported", "gguf"):
        files = [path for path in (tmp_path / folder).rglob("*") if path.is_file()]
        assert not [path for path in files if path.suffix == ".py"]
        for path in files:
            if path.suffix == ".json":
                assert not {"auto_map", "custom_generate", "custom_pipelines"} & set(json.loads(path.read_text()))


@pytest.mark.parametrize("kernel", ["evil/kernel", "kernels-community/flash-attn2@main", "flash_attention_2"])
def test_no_kernel_is_loaded_for_a_name_in_the_configuration(tmp_path: Path, kernel: str) -> None:
    folder = save_tiny("llama", tmp_path)
    ids = torch.tensor([[1, 2, 3]])
    expected = load(find_model(folder)).module(ids).logits
    for entry in ("attn_implementation", "_attn_implementation", "experts_implementation"):
        edit(folder / "config.json", **{entry: kernel})
    model = load(find_model(folder))
    assert "/" not in model.module.config._attn_implementation
    assert torch.equal(model.module(ids).logits, expected)


class Touch:
    """Pickled, it is a call that makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple:
        return open, (str(self.path), "w")


@pytest.mark.parametrize("zipped", [True, False])
def test_a_pickle_is_not_run(tmp_path: Path, ran: Path, zipped: bool) -> None:
    folder = save_tiny("llama", tmp_path / "model")
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save(weights, folder / "pytorch_model.bin")
    load(find_model(folder))
    if zipped:
        torch.save(weights | {"evil": Touch(ran)}, folder / "pytorch_model.bin")
    else:
        (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Touch(ran)))
    with pytest.raises(BrokenModel):
        load(find_model(folder))
    assert not ran.exists()
    # It would have been.
    pickle.loads(pickle.dumps(Touch(ran)))  # noqa: S301
    assert ran.exists()


@pytest.mark.parametrize("name", ["model.pt", "model.pth", "model.ckpt", "pytorch_model.pkl", "training_args.bin"])
def test_no_other_pickle_is_opened(tmp_path: Path, ran: Path, name: str) -> None:
    folder = save_tiny("llama", tmp_path / "model")
    (folder / name).write_bytes(pickle.dumps(Touch(ran)))
    load(find_model(folder))
    (folder / "model.safetensors").unlink()
    with pytest.raises(LaaciqError, match="has no weights"):
        load(find_model(folder))
    assert not ran.exists()


def test_folders_on_the_path_of_modules_are_not_imported_from(hostile: Path, ran: Path, tmp_path: Path) -> None:
    """The command line, started within the folder of a stranger."""
    shutil.copy(hostile / "evil.py", hostile / "torch.py")
    shutil.copy(hostile / "evil.py", hostile / "sitecustomize.py")
    script = Path(sys.executable).with_name("laaciq")
    subprocess.run([script, "methods"], cwd=hostile, check=True, capture_output=True)
    assert not ran.exists()
