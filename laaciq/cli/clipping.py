"""`laaciq clipping`: the theory's thresholds, formulas and laws, and how well they hold."""

from __future__ import annotations

from dataclasses import asdict
from itertools import groupby
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from laaciq.cli import options as shared
from laaciq.cli.printing import print_json, print_table
from laaciq.errors import BadOption

if TYPE_CHECKING:
    from laaciq.clipping.formula import FormulaError
    from laaciq.clipping.sharing import SharingCost


@shared.takes()
def clipping(
    bits: Annotated[str | None, typer.Option(help="Bits per code, 2 to 8, for example '3,4'. Default: all.")] = None,
    as_json: shared.AsJson = False,
) -> None:
    """Optimal clipping thresholds by distribution and bits, the formulas for them, and what a shared threshold costs."""
    from laaciq.clipping.formula import FITTED, PUBLISHED, error_table
    from laaciq.clipping.sharing import sharing_table

    chosen = tuple(FITTED.coefficients) if bits is None else shared.split_numbers("bits", bits)
    if not chosen:
        raise BadOption(f"bits {bits!r} is not a list of numbers: give for example 2,3,4")
    formulas = {
        "published": {width: PUBLISHED.at(width) for width in chosen if width in PUBLISHED},
        "fitted": {width: FITTED.at(width) for width in chosen},
    }
    errors = {formula.name: error_table(formula, formulas[formula.name]) for formula in (PUBLISHED, FITTED)}
    thresholds, costs = _thresholds(chosen), sharing_table(chosen)
    if as_json:
        content = {
            "thresholds": thresholds,
            "coefficients": {name: {width: c._asdict() for width, c in by.items()} for name, by in formulas.items()},
            "errors": {name: [asdict(row) for row in rows] for name, rows in errors.items()},
            "sharing": [asdict(cost) for cost in costs],
        }
        print_json(content)
        return
    _show("Optimal thresholds α*/σ, by what is minimised", _threshold_table(thresholds, chosen))
    title = "α*/σ ≈ c + d·ln(1+κ): worst error of α, median and worst excess error (model)"
    _show(title, _formula_table(formulas, errors))
    for title, part, whole in (
        ("Cost of sharing the threshold of κ = 3, in % of the least error", "excess", "least_mse"),
        ("The parabola in α, as a multiple of that cost", "second_order", "excess"),
        ("The quadratic law in κ, as a multiple of that cost", "quadratic_law", "excess"),
    ):
        _show(title, _sharing_table(costs, chosen, part, whole))


def _show(title: str, table: Table) -> None:
    """Prints a table with its title on the line above: a narrow table would fold the title."""
    print_table("", Text(title, style="italic"), table)


def _thresholds(bits: tuple[int, ...]) -> list[dict[str, Any]]:
    """α*/σ of four distributions, by the noise model with either step and by the true error."""
    from laaciq.clipping.distributions import GAUSSIAN, LAPLACIAN, GeneralisedGaussian, StudentT
    from laaciq.clipping.optimum import optimal_threshold, true_optimal_threshold

    return [
        {
            "distribution": str(member),
            "kurtosis": member.kurtosis,
            "noise_model_published_step": {
                width: optimal_threshold(member, width, step="published").alpha for width in bits
            },
            "noise_model_real_step": {width: optimal_threshold(member, width, step="real").alpha for width in bits},
            "true_error": {width: true_optimal_threshold(member, width).alpha for width in bits},
        }
        for member in (GAUSSIAN, LAPLACIAN, GeneralisedGaussian(0.5), StudentT(5.0))
    ]


def _threshold_table(rows: list[dict[str, Any]], bits: tuple[int, ...]) -> Table:
    table = _table("", *(f"{width} bits" for width in bits))
    labels = {
        "noise_model_published_step": "model, Δ = 2α/(2^B−1)",
        "noise_model_real_step": "model, Δ = α/q",
        "true_error": "true error",
    }
    for row in rows:
        table.add_row(row["distribution"], style="bold")
        for error, label in labels.items():
            table.add_row(f" {label}", *(f"{row[error][width]:.3f}" for width in bits))
    return table


def _formula_table(formulas: dict[str, Any], errors: dict[str, list[FormulaError]]) -> Table:
    """The farthest α, and the median and the worst cost, over the family of distributions."""
    table = _table("formula", "bits", "c", "d", "α", "median", "worst")
    table.add_column("of", no_wrap=True, style="dim")
    for name, rows in errors.items():
        for width, members in groupby(rows, key=lambda row: row.bits):
            of_bits = list(members)
            dearest = max(of_bits, key=lambda row: row.excess_mse)
            shares = (
                max((row.relative_error for row in of_bits), key=abs),
                median(row.excess_mse for row in of_bits),
                dearest.excess_mse,
            )
            cells = [f"{value:.3f}" for value in formulas[name][width]] + [f"{100 * share:z.1f} %" for share in shares]
            table.add_row(name, str(width), *cells, dearest.distribution)
    return table


def _sharing_table(costs: list[SharingCost], bits: tuple[int, ...], part: str, whole: str) -> Table:
    table = _table("", *(f"{width} bits" for width in bits))
    for (family, kurtosis), row in groupby(costs, key=lambda cost: (cost.family, cost.effective_kurtosis)):
        ratios = (getattr(cost, part) / getattr(cost, whole) for cost in row)
        factor = 100 if part == "excess" else 1
        table.add_row(f"{family}, κ {kurtosis:g}", *(f"{factor * ratio:.2f}" for ratio in ratios))
    return table


def _table(first: str, *numbers: str) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column(first, no_wrap=True)
    for heading in numbers:
        table.add_column(heading, justify="right", no_wrap=True)
    return table
