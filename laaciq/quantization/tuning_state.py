"""The state of tuning after an epoch, kept in a store so that a command that was killed goes on with the next epoch."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from laaciq.engine.store import Store, key_of
from laaciq.quantization.stored_layers import ROUNDED
from laaciq.quantization.student import Student

_TENSORS, _NUMBERS = "state.safetensors", "state.json"


@dataclass
class TuningState:
    """What an epoch changes. `divergences` has one entry for every epoch that is done, and one for the start."""

    student: Student
    optimizer: torch.optim.Optimizer
    schedule: torch.optim.lr_scheduler.LambdaLR
    divergences: list[float] = field(default_factory=list)

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        tensors = {name: p.detach().cpu().contiguous() for name, p in self.student.named_parameters()}
        for number, moments in self.optimizer.state_dict()["state"].items():
            tensors |= {f"{number}/{name}": value.cpu().contiguous() for name, value in moments.items()}
        save_file(tensors, folder / _TENSORS)
        numbers = {"divergence": self.divergences[-1], "schedule": self.schedule.state_dict()["last_epoch"]}
        (folder / _NUMBERS).write_text(json.dumps(numbers), encoding="utf-8")

    def load(self, folder: Path) -> None:
        tensors = load_file(folder / _TENSORS)
        with torch.no_grad():
            for name, parameter in self.student.named_parameters():
                parameter.copy_(tensors.pop(name))
        states: dict[int, dict[str, torch.Tensor]] = {}
        for name, value in tensors.items():
            number, _, moment = name.partition("/")
            states.setdefault(int(number), {})[moment] = value
        numbers = json.loads((folder / _NUMBERS).read_text(encoding="utf-8"))
        self.optimizer.load_state_dict(self.optimizer.state_dict() | {"state": states})
        self.schedule.last_epoch = numbers["schedule"]
        for group, rate, factor in zip(
            self.optimizer.param_groups, self.schedule.base_lrs, self.schedule.lr_lambdas, strict=True
        ):
            group["lr"] = rate * factor(numbers["schedule"])
        self.divergences.append(numbers["divergence"])


@dataclass(frozen=True)
class KeptEpochs:
    """Epochs of one tuning in a store. `key` identifies the layers, which are tuned for this many `epochs`: rates depend on it."""

    store: Store
    key: str
    epochs: int

    def restore(self, epoch: int, state: TuningState) -> bool:
        """Set the state to that after an epoch, if it is there."""
        if not self.store.valid(self._name(epoch), self._key):
            return False
        state.load(self.store.folder(self._name(epoch), self._key, lambda folder: None))
        return True

    def keep(self, epoch: int, state: TuningState) -> None:
        self.store.folder(self._name(epoch), self._key, state.save)

    @property
    def _key(self) -> str:
        return key_of("tuning", self.key, self.epochs)

    def _name(self, epoch: int) -> str:
        return f"{ROUNDED}/{self.key[:16]}/epoch-{epoch}"
