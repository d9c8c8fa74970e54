"""`compare`: methods side by side on one model. Each row is kept, so that other environments with other libraries add theirs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from pydantic import ValidationError

from laaciq.corpus import Texts, read_split
from laaciq.corpus.calibration_choice import calibrating
from laaciq.engine.files import write_text
from laaciq.engine.progress import Progress
from laaciq.engine.store import RunFolder, key_of
from laaciq.errors import BadOption, BrokenModel, LaaciqError, MissingExtra
from laaciq.evaluation import evaluate_measurements, measure
from laaciq.models import find_model
from laaciq.models.loading import pick_device
from laaciq.options import REFERENCE, CompareOptions
from laaciq.report.compare_report import compare_html
from laaciq.studies.compared_methods import ComparedMethod, find_compared_method, find_compared_methods
from laaciq.studies.comparison import Comparison, Row
from laaciq.studies.workshop import Workshop
from laaciq.trials.estimate import estimate, require_memory


def compare(
    model: str | Path = REFERENCE,
    *,
    methods: Iterable[str] | None = None,
    languages: Iterable[str] | None = None,
    out: str | Path | None = None,
    overwrite: bool = False,
    device: str = "auto",
    progress: Progress | None = None,
    **options: object,
) -> Comparison:
    """What each method costs each language of `model`, and at what size; options as in `CompareOptions`.

    Rows that are in `out` already stay, wherever they were computed; one that failed is tried again. `compare.json` and `report.html` are
    written there.
    """
    names = {"methods": methods, "languages": languages}
    chosen = CompareOptions.of(
        model=str(model), **{name: None if own is None else tuple(own) for name, own in names.items()}, **options
    )
    progress = progress or Progress()
    compared = find_compared_methods(chosen.methods)
    target = Path(out) if out else chosen.default_folder
    folder, place = find_model(chosen.model), pick_device(device)
    whole = read_split(chosen.texts, seed=chosen.seed)
    test = whole.test.select(chosen.languages)
    test = test if chosen.passages is None else test.spread(chosen.passages)
    split = calibrating(chosen.calibration, whole, test, seed=chosen.seed)
    if (most := chosen.calibration_passages) is not None:
        split = replace(split, calibration=split.calibration.spread(most), validation=split.validation.spread(most))
    cost = estimate(folder, test, device=place)
    require_memory(cost, place)
    # Rows of all comparisons of a model may share a folder: each is kept under its own key.
    described = CompareOptions(model=chosen.model).command
    store = RunFolder(target, description={"command": described}, overwrite=overwrite)
    workshop = Workshop(folder, device, split, chosen.measuring(), store, progress)
    table = _Table(chosen, test, workshop, store, progress)
    progress.say(
        f"Comparing {len(compared)} methods on {folder.name} at {chosen.bits} bits, calibrated on {chosen.calibration!r}; "
        f"results go to {target}. Measuring takes {cost} for each."
    )
    rows = [table.row(own) for own in compared]
    found = Comparison(
        model=folder.name,
        texts=test.name,
        bits=chosen.bits,
        calibration=chosen.calibration,
        passages=max(map(len, test.by_language.values())),
        languages=test.languages,
        rows=rows + table.others(rows),
        command=chosen.command,
    )
    write_text(target / "compare.json", found.model_dump_json(indent=1))
    write_text(target / "report.html", compare_html(found))
    store.finish()
    return found


@dataclass
class _Table:
    """Computes rows, and finds those that are there."""

    options: CompareOptions
    test: Texts
    workshop: Workshop
    store: RunFolder
    progress: Progress

    def key(self, compared: ComparedMethod) -> str:
        """Of a row: what it is measured on and made from, and nothing of the environment that it is computed in."""
        split = self.workshop.split
        read = (split.calibration.fingerprint, split.validation.fingerprint) if compared.reads_text else None
        measured = (self.workshop.folder.fingerprint, self.test.fingerprint, self.options.measuring().model_dump())
        return key_of("compare", measured, compared.name, self.options.bits, read)

    def row(self, compared: ComparedMethod) -> Row:
        key = self.key(compared)
        name = _file(compared.name, key)
        before = self._kept(name, key)
        if before is not None and before.reason is None:
            self.progress.say(f"{compared.name}: there already.")
            return before
        self.progress.say(f"{compared.name} …")
        found = self._compute(compared)
        if found.reason is not None:
            self.progress.say(f"{compared.name}: {found.reason}")
        if found.missing:
            # What went wrong where the library is installed says more.
            return before or found
        self.store.keep(name, found, key)
        return found

    def others(self, shown: list[Row]) -> list[Row]:
        """Rows of methods that were not asked for now, but were before, of the same model and texts."""
        found = []
        for path in sorted((self.store.path / "rows").glob("*.json")):
            method = path.stem.rpartition("-")[0]
            if method in {own.method for own in shown}:
                continue
            try:
                key = self.key(find_compared_method(method))
            except BadOption:  # of another version, which knew other methods
                continue
            row = self._kept(_file(method, key), key)
            found += [row] if row is not None and path.name == Path(_file(method, key)).name else []
        return found

    def _kept(self, name: str, key: str) -> Row | None:
        try:
            return self.store.read(name, Row) if self.store.valid(name, key) else None
        except ValidationError:  # of another version of the object
            return None

    def _compute(self, compared: ComparedMethod) -> Row:
        bits, reads = self.options.bits, compared.reads_text
        try:
            made, for_language = self.workshop.make(compared, bits)
            measurements = []
            with self.progress.stage("measuring", sum(map(len, self.test.by_language.values()))) as advance:
                for code, passages in self.test.by_language.items():
                    asked = self.options.measuring()
                    twin = for_language(code)
                    measurements.append(measure(self.workshop.original, twin, passages, asked, advance=advance))
            if not all(np.isfinite(m.quantized_nll).all() for m in measurements):
                raise BrokenModel("the quantized model's predictions are not finite")
            evaluation = evaluate_measurements(
                measurements,
                original=self.workshop.folder.name,
                quantized=f"{compared.name}, {bits} bits",
                texts=self.test.name,
                parallel=self.test.parallel,
                served_bound=self.options.served_bound,
                seed=self.options.seed,
            )
        except (Exception, SystemExit) as error:  # a library may raise anything: that is what its row says
            return Row(
                method=compared.name,
                bits=bits,
                reads_text=reads,
                reason=_reason(error),
                missing=isinstance(error, MissingExtra),
            )
        return Row(method=compared.name, bits=bits, reads_text=reads, made=made, evaluation=evaluation)


def _file(method: str, key: str) -> str:
    return f"rows/{method}-{key[:8]}.json"


def _reason(error: BaseException) -> str:
    """One line."""
    first = (str(error).strip().splitlines() or [""])[0]
    return first if isinstance(error, LaaciqError) else f"{type(error).__name__}: {first}"
