"""The estimate that a run prints before it begins covers every stage that it then shows."""

from contextlib import contextmanager

import pytest

from laaciq.commands.opening import open_session
from laaciq.commands.run import Chain
from laaciq.commands.settings import Settings
from laaciq.engine.progress import Progress
from laaciq.options import RunOptions
from tests.short_texts import write_short_texts
from tests.tiny import save_tiny

# The first word of each stage that is shown, and of those of the estimate that stand for it.
ESTIMATED = {
    "scanning": {"profile", "profiling"},
    "reading": {"profile", "profiling"},
    "curvature": {"curvature"},
    "second": {"second"},
    "predicting": {"predicted"},
    "rounding,": {"rounding"},
    "measuring": {"validation", "measuring", "numeric"},
    "tuning": {"tuning"},
    "rounding": {"baseline:"},
    "generating": {"generating"},
}


class Recorded(Progress):
    def __init__(self):
        self.stages = []

    @contextmanager
    def stage(self, title, total, **_):
        done = []
        self.stages.append((title, total, done))
        yield done.append


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """The stages of a run as they were estimated, and as they were shown."""
    folder = tmp_path_factory.mktemp("estimate")
    texts = write_short_texts(folder / "texts", ("eng", "swa"))
    given = {"texts": texts, "served_bound": 100, "tune": 1, "generate": True, "numeric_check": True}
    options = RunOptions.of(model=save_tiny("llama", folder / "model"), **given)
    progress = Recorded()
    with open_session(options, Settings(out=folder / "run", progress=progress)) as session:
        chain = Chain(session, options)
        estimated = chain.stages()
        chain.run()
    return estimated, progress.stages


def test_every_stage_is_estimated(recorded):
    estimated, shown = recorded
    names = {stage.name.split()[0] for stage in estimated}
    assert {title.split()[0] for title, _, _ in shown} == set(ESTIMATED)
    assert set().union(*ESTIMATED.values()) <= names
    # What is shown as no stage of its own.
    assert names - set().union(*ESTIMATED.values()) == {"loading", "allocation", "writing", "report"}
    assert all(stage.seconds > 0 for stage in estimated)


def test_every_stage_shown_reaches_its_total(recorded):
    """Planning too: its stages go in steps, but for those that are one step on so small a model."""
    _, shown = recorded
    for title, total, done in shown:
        # Vectors, 1 % of the bytes here, are not scanned.
        assert sum(done) == pytest.approx(total, rel=0.02), title
    # Rounding goes block by block, and there are two.
    for title, least in (("curvature", 6), ("predicting losses", 6), ("rounding, round-0", 2), ("rounding", 2)):
        steps = [done for name, _, done in shown if name == title]
        assert steps and all(len(done) >= least for done in steps), title
