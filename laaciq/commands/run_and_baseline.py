"""The ways in which a run stores the model: the requested one and the baseline. Each is decided, and its checkpoints are written, once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from laaciq.commands.quantize import quantize_plans, write_checkpoints
from laaciq.corpus import Texts
from laaciq.engine.workers import Pending
from laaciq.options import RunOptions, WeightOptions
from laaciq.planning.baseline import baseline_options
from laaciq.planning.decision import Decision, decide, decision_key
from laaciq.profiling.results import Profile
from laaciq.quantization.calibration import Calibration
from laaciq.quantization.grid import Layers
from laaciq.quantization.model import Quantized
from laaciq.quantization.plan import PlanSet
from laaciq.trials.candidate import Checkpoints
from laaciq.trials.session import Session
from laaciq.trials.tasks import RoundPlan

# Prefixes of the files of the two arms of a run.
RUN, BASELINE = "", "baseline/"


@dataclass(frozen=True)
class Arm:
    """One way to store the model within a run: the requested one, or the baseline. `prefix` begins its file names."""

    prefix: str
    options: WeightOptions
    key: str

    @property
    def trial(self) -> str:
        """The name of its measurements."""
        return self.prefix.strip("/") or "run"

    @property
    def checkpoint(self) -> str:
        return f"{self.prefix}checkpoint"

    @property
    def plans(self) -> str:
        return f"{self.prefix}plans.json"


@dataclass(frozen=True)
class StoredArm:
    """An arm with written checkpoints. `test` holds the languages that they serve."""

    arm: Arm
    decision: Decision
    candidate: Checkpoints
    test: Texts


def arms_of(session: Session, options: RunOptions, profile: Profile) -> list[Arm]:
    """The requested arm, and the baseline if there is one."""
    arms = [(RUN, options.quantizing()), (BASELINE, baseline_options(options, profile))]
    return [Arm(prefix, weights, decision_key(session, weights)) for prefix, weights in arms if weights is not None]


def round_ahead(session: Session, arm: Arm, calibration: Calibration) -> Pending[Layers] | None:
    """The layers of an arm that needs no planning, from a worker; None if its checkpoint is there."""
    if session.store.valid(arm.checkpoint, arm.key):
        return None
    decision = decide(session, arm.options, calibration)
    return session.submit(RoundPlan(arm.trial, decision.plans.first))


def store_arm(session: Session, arm: Arm, calibration: Calibration, ahead: Pending[Layers] | None) -> StoredArm:
    """Decide how the model is stored, and write its checkpoints. `ahead` are its layers, if a worker rounds them."""
    decision = session.store.result(arm.plans, Decision, arm.key, lambda: decide(session, arm.options, calibration))
    root = checkpoint_folder(session, arm.checkpoint, arm.key, decision.plans, calibration, ahead)
    test = served_texts(session.split.test, decision.plans)
    if left_out := [code for code in session.split.test.languages if code not in test.languages]:
        session.progress.say(f"Not served, so without a checkpoint: {', '.join(left_out)}.")
    return StoredArm(arm, decision, Checkpoints(arm.trial, arm.key, decision.plans, root), test)


def is_measured(session: Session, arm: Arm) -> bool:
    """True if nothing of an arm is left to decide, to write or to measure."""
    store = session.store
    if not (store.valid(arm.plans, arm.key) and store.valid(arm.checkpoint, arm.key)):
        return False
    test = served_texts(session.split.test, store.read(arm.plans, Decision).plans)
    return not session.pending(f"{arm.trial}/test", arm.key, test)


def checkpoint_folder(
    session: Session,
    name: str,
    key: str,
    plans: PlanSet,
    calibration: Calibration | None,
    ahead: Pending[Layers] | None = None,
) -> Path:
    """The folder of checkpoints, written unless it is there. What was kept of their layers in case of a kill is not needed after it."""
    quantized: dict[str, Quantized] = {}
    if not session.store.valid(name, key):
        quantized = quantize_plans(session, plans, calibration) if ahead is None else {"": (ahead.result(), {})}
    root = session.store.folder(name, key, lambda folder: write_checkpoints(session, plans, folder, quantized))
    for plan in plans.plans.values():
        if (blocks := session.rounded_blocks(plan, calibration)) is not None:
            blocks.drop()
    return root.absolute()


def served_texts(test: Texts, plans: PlanSet) -> Texts:
    """Test text of the languages that some checkpoint serves."""
    return test.select([code for code in test.languages if plans.serves(code)])
