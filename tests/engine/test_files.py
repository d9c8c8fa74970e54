import pytest

from laaciq.engine.files import atomic_folder, require_free, require_free_file
from laaciq.errors import OutputConflict


def write(folder, *names):
    with atomic_folder(folder) as partial:
        for name in names:
            (partial / name).parent.mkdir(exist_ok=True)
            (partial / name).write_text(name)


def names(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()} - {".laaciq-files"}


def test_a_failing_writer_leaves_what_was_there(tmp_path):
    write(tmp_path / "folder", "old")
    with pytest.raises(RuntimeError), atomic_folder(tmp_path / "folder") as partial:
        (partial / "new").write_text("new")
        raise RuntimeError
    assert names(tmp_path / "folder") == {"old"}
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_a_finished_result_is_replaced_only_on_request(tmp_path):
    folder = tmp_path / "folder"
    require_free(folder)
    folder.mkdir()
    require_free(folder)
    write(folder, "a", "sub/b")
    with pytest.raises(OutputConflict, match=r"finished result.*--overwrite"):
        require_free(folder)
    require_free(folder, overwrite=True)
    write(folder, "c")
    assert names(folder) == {"c"}


def test_folders_written_one_by_one_count_as_written(tmp_path):
    for code in ("eng", "swa"):
        write(tmp_path / "checkpoints" / code, "config.json")
    require_free(tmp_path / "checkpoints", overwrite=True)


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("place", ["thesis.txt", "sub/thesis.txt"])
def test_files_of_others_are_never_replaced(tmp_path, overwrite, place):
    write(tmp_path / "folder", "a", "sub/b")
    (tmp_path / "folder" / place).write_text("years of work")
    with pytest.raises(OutputConflict, match=f"did not write \\({place}\\)"):
        require_free(tmp_path / "folder", overwrite=overwrite)
    with pytest.raises(OutputConflict, match="is a file"):
        require_free(tmp_path / "folder" / place, overwrite=overwrite)


def test_a_file_is_replaced_only_on_request(tmp_path):
    require_free_file(tmp_path / "plan.json")
    (tmp_path / "plan.json").write_text("edited by hand")
    with pytest.raises(OutputConflict, match=r"plan\.json exists.*--overwrite"):
        require_free_file(tmp_path / "plan.json")
    require_free_file(tmp_path / "plan.json", overwrite=True)
    with pytest.raises(OutputConflict, match="is a folder"):
        require_free_file(tmp_path, overwrite=True)
