"""Draws of calibration text: a task makes the rows of one draw, in this process or in a worker, and writes them to a folder of that draw."""

from __future__ import annotations

import argparse
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.rows import TEXT_FREE, DrawRows
from laaciq.corpus import Split, Texts
from laaciq.engine.progress import Advance, TerminalProgress
from laaciq.engine.store import MemoryStore
from laaciq.engine.workers import make_workers
from laaciq.models import find_model
from laaciq.models.computing import pick_device
from laaciq.options import MeasureOptions
from laaciq.trials.session import Session

# In float32 everywhere, so that nothing but the weights differs.
MEASURE = MeasureOptions(dtype="float32")


@dataclass(frozen=True)
class Draw(ABC):
    """A task. `texts` are what calibration passages are drawn from, `tests` the test texts by name. Without a `number` it makes the rows of
    methods that read no text.
    """

    number: int | None
    arguments: argparse.Namespace
    texts: Texts
    tests: dict[str, Texts]
    reads: tuple[str, ...] = field(default=(), init=False)

    @property
    def name(self) -> str:
        return TEXT_FREE if self.number is None else f"draw-{self.number}"

    def run(self, session: Session, advance: Advance) -> None:
        """The session has the model; what else it has serves estimates alone."""
        drawn = session.on(self.split()).keeping_in(MemoryStore(), self.name)
        given = vars(self.arguments)
        settings = {"benchmark": type(self).__name__, "device": session.place.type} | {
            name: str(given[name]) for name in self.settings()
        }
        folder = Path(self.arguments.out) / self.name
        rows = DrawRows(folder, settings, drawn, self.tests, overwrite=self.arguments.overwrite)
        self.make(rows)
        rows.finish()
        advance(1)

    @abstractmethod
    def split(self) -> Split:
        """The passages of this draw."""

    @abstractmethod
    def settings(self) -> Iterable[str]:
        """Names of the arguments that decide what a row holds; all rows in a folder share them."""

    @abstractmethod
    def make(self, rows: DrawRows) -> None:
        """Make the rows."""


def add_draw_arguments(parser: argparse.ArgumentParser) -> None:
    """Where rows go, and how draws are handed out."""
    parser.add_argument("--out", type=Path, required=True, help="folder for the rows; the same command resumes")
    parser.add_argument("--overwrite", action="store_true", help="replace the rows of another command in that folder")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--workers", type=int, help="draws that are made at the same time, as in docs/workers.md")
    parser.add_argument("--ray", help="address of a Ray cluster, whose machines share --out and the model")


def open_session(model: str, arguments: argparse.Namespace, split: Split) -> Session:
    """To be used in a `with` block, which ends the workers."""
    pick_device(arguments.device)
    # Workers have another current folder.
    arguments.out = arguments.out.absolute()
    return Session(
        find_model(model), split, MEASURE, TerminalProgress(), arguments.device,
        workers=make_workers(arguments.workers, arguments.ray),
    )  # fmt: skip


def make_draws(session: Session, draws: list[Draw]) -> None:
    session.hand_out("draws", [(draw, lambda result: result) for draw in draws], total=len(draws))
