"""Files that say how images and sounds become inputs of a multimodal model. They belong in every checkpoint that is made of it."""

from __future__ import annotations

from laaciq.engine.input_files import is_file, read_text
from laaciq.models.configuration import COPY_AGAIN
from laaciq.models.folder import ModelFolder

_NAMES = ("processor_config.json", "preprocessor_config.json", "video_preprocessor_config.json")


def processor_files(folder: ModelFolder) -> dict[str, str]:
    """The text of each file that is there, by name."""
    paths = {name: folder.path / name for name in _NAMES}
    return {name: read_text(path, COPY_AGAIN, within=folder.path) for name, path in paths.items() if is_file(path)}
