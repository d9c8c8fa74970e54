"""Which machine each worker runs on, and with how many threads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from laaciq.errors import BadOption


@dataclass(frozen=True)
class Machine:
    """A machine of a cluster. `node` is its name there; `gpus` are how many workers its GPUs have room for; `memory` in bytes."""

    node: str
    cpus: int
    gpus: int
    memory: float


@dataclass(frozen=True)
class Place:
    """Where a worker runs, and its share of the machine's cores."""

    node: str
    threads: int


def sharing(workers: int, gpus: int) -> int:
    """How many workers share the GPU that most of them share."""
    return -(-workers // max(gpus, 1))


def gpu_share(workers: int) -> float:
    """What Ray sets aside for each of so many workers on a GPU. It counts in units of 10⁻⁴, and must not find that the last one has no room."""
    return 10_000 // workers / 10_000


def place_workers(machines: Sequence[Machine], count: int | None, *, gpu: bool, memory: float) -> list[Place]:
    """Places of `count` workers, each with a GPU of its own or a core, and `memory` bytes. They are spread over the machines: the next one goes
    where most room is left. Without a `count`, every GPU gets a worker; without GPUs, every machine.
    """
    room = {machine: _room(machine, gpu=gpu, memory=memory) for machine in machines}
    most = sum(room.values())
    wanted = count or (most if gpu else sum(fits > 0 for fits in room.values()))
    if wanted > most or not most:
        need = f"{'a GPU' if gpu else 'a core'} and {memory / 2**30:.1f} GB of memory"
        raise BadOption(
            f"the cluster has room for {most} workers with {need} each{'' if count is None else f', not for {count}'}: "
            f"{'give fewer --workers, or ' if most else ''}add machines"
        )
    taken = dict.fromkeys(machines, 0)
    for _ in range(wanted):
        freest = max(machines, key=lambda machine: (room[machine] - taken[machine]) / max(room[machine], 1))
        taken[freest] += 1
    return [
        Place(machine.node, max(1, machine.cpus // workers))
        for machine, workers in taken.items()
        for _ in range(workers)
    ]


def _room(machine: Machine, *, gpu: bool, memory: float) -> int:
    slots = machine.gpus if gpu else machine.cpus
    return min(slots, int(machine.memory // memory)) if memory else slots
