"""A plan in words says of every tensor how it is stored, once."""

from __future__ import annotations

import pytest

from laaciq.quantization.plan import Plan, TensorPlan
from laaciq.report.storage import spans, storage_rows
from tests.report.test_report import PLAN

BLOCKS = [f"model.layers.{i}" for i in range(12)]


def tensor(block: int, kind: str, bits: int, **other: object) -> TensorPlan:
    name = f"model.layers.{block}.{kind}.weight"
    return TensorPlan(name=name, shape=(64, 64), bits=bits, group_size=64, symmetric=True, **other)


def test_blocks_that_are_stored_otherwise_are_named() -> None:
    # Block 1 must not be taken for block 10 or 11.
    down = [tensor(i, "mlp.down", 8 if i in (0, 1, 11) else 4) for i in range(12)]
    alike = [tensor(i, kind, 4) for i in range(12) for kind in ("mlp.up", "mlp.gate")]
    head = TensorPlan(
        name="embed.weight", shape=(64, 64), bits=6, group_size=32, symmetric=False, used_by=("embed", "head")
    )
    rows = storage_rows(Plan(method="rtn", tensors=[*down, *alike, head], size=PLAN.size), BLOCKS)
    assert [row.kinds for row in rows] == [["mlp.down"], ["mlp.up", "mlp.gate"], ["embed", "head"]]
    assert rows[0].stored == "8 bits, group 64, symmetric in blocks 0–1, 11; 4 bits, group 64, symmetric in blocks 2–10"
    assert rows[1].stored == "4 bits, group 64, symmetric"
    # One scale of 16 bits for 64 weights.
    assert rows[0].bits_per_weight == pytest.approx((3 * 8 + 9 * 4) / 12 + 16 / 64)
    # A scale and a zero point for 32.
    assert rows[2].bits_per_weight == pytest.approx(6 + (16 + 6) / 32)


def test_kept_and_unquantized_weights_are_named() -> None:
    plan = Plan(method="rtn", tensors=[tensor(0, "up", 4, keep=1.0, rank=2), tensor(0, "down", 16)], size=PLAN.size)
    kept, left = storage_rows(plan, BLOCKS)
    assert kept.stored == "4 bits, group 64, symmetric, 1 % kept in 16 bits, correction of rank 2"
    assert left.stored == "16 bits, not quantized"


def test_spans() -> None:
    assert spans([5, 0, 2, 1]) == "0–2, 5"
    assert spans([3]) == "3"
