"""What a worker needs to open a session like that of the main process."""

from __future__ import annotations

import socket
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from laaciq.corpus import Split
from laaciq.engine.environment import environment_words
from laaciq.engine.input_files import is_folder
from laaciq.engine.progress import Progress
from laaciq.engine.store import Store
from laaciq.errors import BadOption, BrokenModel
from laaciq.models import ModelFolder
from laaciq.options import MeasureOptions
from laaciq.trials.memory import Demand, MemoryLimits

if TYPE_CHECKING:
    from laaciq.trials.opened_model import OpenedModel
    from laaciq.trials.session import Session


@dataclass(frozen=True)
class SessionSetup:
    """The same model, texts and options. A machine that has another model there, or computes with other libraries or on another kind of device,
    is refused: its numbers would be others.
    """

    folder: ModelFolder
    split: Split
    options: MeasureOptions
    device: str
    fingerprint: str
    computed_with: dict[str, str]
    limits: MemoryLimits
    demand: Demand

    @classmethod
    def of(cls, session: OpenedModel) -> SessionSetup:
        # A worker has another current folder.
        folder = replace(session.folder, path=session.folder.path.absolute())
        device = session.place.type
        return cls(
            folder, session.split, session.options, device, folder.fingerprint, session.computed_with, session.limits,
            session.demand,
        )  # fmt: skip

    def __call__(self, progress: Progress, store: Store) -> Session:
        from laaciq.trials.session import Session

        machine = socket.gethostname()
        if not is_folder(self.folder.path):
            raise BrokenModel(
                f"worker on {machine}: there is no model at {self.folder.path}: put it in a folder that all machines share"
            )
        if self.folder.fingerprint != self.fingerprint:
            raise BrokenModel(
                f"worker on {machine}: the files of the model at {self.folder.path} differ from those here, or their times do: "
                "put it in a folder that all machines share, or copy it with times"
            )
        session = Session(
            self.folder, self.split, self.options, progress, self.device, limits=self.limits, demand=self.demand
        )
        session.__dict__["store"] = store
        if session.computed_with != self.computed_with:
            raise BadOption(
                f"worker on {machine} computes with {environment_words(session.computed_with)}, and this process with "
                f"{environment_words(self.computed_with)}: numbers would differ; use machines of one kind, with the same versions"
            )
        return session
