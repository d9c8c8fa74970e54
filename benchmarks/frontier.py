"""Ours against the peers at equal size: what the worst-off language loses, the disparity, the mean.

    python -m benchmarks.frontier reference --english CORPUS/parallel/dev --test builtin,CORPUS/parallel/test --out DIR
    python -m benchmarks.frontier gemma-3-270m.gguf --calibration TEXTS --test CORPUS/heldout --languages amh,yor,… --draws 2 --out DIR

Texts are 'builtin' or folders with a file a language. Peers run at their native settings (benchmarks/peers.txt names an environment for
them), calibrated in English or in all languages on as many passages as ours; each is compared with our plan of its counted size, never above
it: over the linear layers of the blocks, and over the whole model. Every draw takes other calibration passages. Intervals resample test
passages and draws, with the worst language chosen anew in each resample. Rows that are done are not computed again.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import multiprocessing
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from benchmarks.drawn import DrawnLosses
from laaciq.backends.size import bits_per_weight
from laaciq.corpus import Split, Texts, language, read_split, read_texts
from laaciq.engine.files import write_text
from laaciq.evaluation.degradation import COLLAPSE_FACTOR
from laaciq.models import LanguageModel, find_model, load
from laaciq.options import Effort, MeasureOptions, WeightOptions
from laaciq.planning.rules import make_plans
from laaciq.planning.search import search_plan
from laaciq.profiling.profile import profile_model
from laaciq.profiling.results import Profile
from laaciq.quantization import Calibration
from laaciq.quantization.model import quantize_layers, quantize_model
from laaciq.scoring.likelihood import nll_by_passage
from laaciq.scoring.sequences import prepare_all
from laaciq.stats.bootstrap import document_counts, percentile_interval
from laaciq.trials.quantized_copy import copy_of, put_layers
from laaciq.trials.session import Session

MEASURE = MeasureOptions()
Track = Literal["blocks", "model"]
ENGLISH, ALL, NONE = "English", "all languages", "none"
RESAMPLES = 2000
BITS_CLASSES = (4, 3)
# In ΔNLL.
COLLAPSED = math.log(COLLAPSE_FACTOR)
THEIR_GPTQ, OUR_GPTQ = "llmcompressor GPTQ 4 bits, all languages", "our GPTQ alone, 4 bits, all languages"


@dataclass(frozen=True)
class Candidate:
    """A peer at one setting: how to run it, and what it is calibrated on."""

    name: str
    bits: int
    texts: str
    options: dict[str, object]

    @property
    def row(self) -> str:
        return self.name if self.texts == NONE else f"{self.name}, {self.texts}"


CANDIDATES = [
    Candidate("NF4", 4, NONE, {"module": "bitsandbytes"}),
    Candidate("HQQ 4 bits", 4, NONE, {"module": "hqq"}),
    Candidate("HQQ 3 bits", 3, NONE, {"module": "hqq"}),
    *(
        Candidate(f"llmcompressor {method} {bits} bits", bits, texts, {"module": "llmcompressor", "method": method})
        for method, bits in (("GPTQ", 4), ("GPTQ", 3), ("AWQ", 4))
        for texts in (ENGLISH, ALL)
    ),
]


@dataclass
class Draw:
    """One draw of calibration text: all rows, kept in a file as they are computed."""

    number: int
    out: Path
    model: LanguageModel
    twin: LanguageModel
    calibration: Texts
    validation: Texts
    english: list[str]
    tests: dict[str, Texts]
    effort: Effort

    def __post_init__(self) -> None:
        self.file = self.out / f"draw-{self.number}.json"
        self.rows = json.loads(self.file.read_text()) if self.file.exists() else {}
        self.prepared = {
            name: [p for own in test.by_language.values() for p in prepare_all(self.model, own)]
            for name, test in self.tests.items()
        }

    def keep(self, row: str, compute: Callable[[], dict[str, object]]) -> dict[str, object]:
        if row not in self.rows:
            began = time.perf_counter()
            found = compute()
            self.rows[row] = found | {"seconds": found.get("seconds", time.perf_counter() - began)}
            write_text(self.file, json.dumps(self.rows))
            print(f"draw {self.number}: {row}, {self.rows[row]['seconds']:.0f} s", flush=True)
        return self.rows[row]

    def losses(self, model: LanguageModel) -> dict[str, list[float]]:
        """NLL of every passage, languages one after the other, by test."""
        return {name: nll_by_passage(model, prepared).tolist() for name, prepared in self.prepared.items()}

    def measured(self) -> dict[str, object]:
        """Of the quantized twin. The error of its weights is ‖Ŵ − W‖ / ‖W‖ over the blocks' linear layers."""
        matrices, quantized = self.model.anatomy.matrices, self.twin.anatomy.matrices
        names = [linear.name for linear in self.model.anatomy.linears]
        error = sum(float((quantized[name] - matrices[name]).square().sum()) for name in names)
        size = sum(float(matrices[name].square().sum()) for name in names)
        return {"nll": self.losses(self.twin), "weight_error": (error / size) ** 0.5}

    def original(self) -> dict[str, object]:
        tokens = {
            name: [sum(len(s.targets) for s in passage.sequences) for passage in prepared]
            for name, prepared in self.prepared.items()
        }
        languages = {name: test.languages for name, test in self.tests.items()}
        return {"nll": self.losses(self.model), "tokens": tokens, "languages": languages}

    def peer(self, candidate: Candidate) -> dict[str, object]:
        from importlib import import_module

        options = dict(candidate.options)
        module = import_module(f"laaciq.backends.{options.pop('module')}")
        texts = {NONE: [], ENGLISH: self.english, ALL: self._all_texts()}[candidate.texts]
        half = copy.deepcopy(self.model.module).to(torch.bfloat16)
        half.name_or_path = str(self.model.folder.path)
        began = time.perf_counter()
        peer = module.quantize(
            half, self.model.tokenizer, texts, bits=candidate.bits, device=self.model.device.type, **options
        )
        seconds = time.perf_counter() - began
        with torch.no_grad():
            for name, parameter in self.twin.module.named_parameters():
                parameter.copy_(self.model.module.get_parameter(name))
        peer.put_into(self.twin.module)
        block_bits, model_bits = bits_per_weight(peer, self.model.anatomy)
        return {
            "settings": peer.settings,
            "block_bits": block_bits,
            "model_bits": model_bits,
            **self.measured(),
            "seconds": seconds,
        }

    def ours(self, budget: float, track: Track) -> dict[str, object]:
        options = WeightOptions(method="planned", budget=budget, budget_for=track, effort=self.effort)
        began = time.perf_counter()
        known = Calibration(self.profile, self.calibration, MEASURE, self.validation)
        # Kept for the predicted losses, which all sizes share.
        folder = self.out / "planning" / f"{self.number}-{track}"
        split = Split(self.calibration, self.validation, self.validation)
        session = Session.of(self.model, split, MEASURE, out=folder, description={"draw": self.number})
        found, rounded = search_plan(session, known, options)
        layers, others = quantize_model(self.model, found.plan, known, rounded=rounded)
        put_layers(self.model, self.twin, layers, others=others)
        seconds = time.perf_counter() - began
        size = found.plan.size
        return {
            "block_bits": size.block_bits_per_weight,
            "model_bits": size.model_bits_per_weight,
            **self.measured(),
            "rounds": [own.value for own in found.rounds],
            "agreement": found.agreement.model_dump(),
            "seconds": seconds,
        }

    def our_gptq(self) -> dict[str, object]:
        """Second-order rounding alone, in the form and on the text of llmcompressor's: one pass, for its time."""
        both = self.calibration.joined(self.validation)
        options = WeightOptions(method="gptq", bits=4, group_size=128)
        plan = make_plans(self.model.anatomy, options, self.profile, served_bound=MEASURE.served_bound).first
        began = time.perf_counter()
        layers = list(quantize_layers(self.model, plan, Calibration(self.profile, both, MEASURE)))
        seconds = time.perf_counter() - began
        put_layers(self.model, self.twin, layers)
        size = plan.size
        return {
            "block_bits": size.block_bits_per_weight,
            "model_bits": size.model_bits_per_weight,
            **self.measured(),
            "seconds": seconds,
        }

    @cached_property
    def profile(self) -> Profile:
        return profile_model(self.model, self.calibration.spread(2), MEASURE, outlier_kurtosis=50.0)

    def _all_texts(self) -> list[str]:
        both = self.calibration.joined(self.validation)
        texts = [text for own in both.by_language.values() for text in own.texts]
        return [texts[i] for i in np.random.default_rng(self.number).permutation(len(texts))]

    def run_textless(self, only: str) -> None:
        """What reads no text is the same in every draw."""
        self.keep("original", self.original)
        for candidate in CANDIDATES:
            if only in candidate.row and candidate.texts == NONE:
                self.keep(candidate.row, partial(self.peer, candidate))

    def run(self, only: str, tracks: list[Track]) -> None:
        self.keep("original", self.original)
        for candidate in CANDIDATES:
            if only in candidate.row and candidate.texts != NONE:
                self.keep(candidate.row, partial(self.peer, candidate))
        self.keep(OUR_GPTQ, self.our_gptq)
        first = json.loads((self.out / "draw-0.json").read_text())
        for track in tracks:
            rows = [row for row in (first | self.rows).values() if "settings" in row]
            for size in our_sizes([size_of(row, track) for row in rows]):
                self.keep(our_row(track, size), partial(self.ours, size, track))


def size_of(row: dict[str, float], track: Track) -> float:
    return row["block_bits"] if track == "blocks" else row["model_bits"]


def our_sizes(sizes: list[float]) -> list[float]:
    """Sizes of our plans: each peer's own, but where two differ by less than one in a hundred, the smaller one serves both."""
    found: list[float] = []
    for size in sorted(sizes):
        if not found or size > 1.01 * found[-1]:
            found.append(round(size - 5e-5, 4))
    return found


def our_row(track: Track, size: float) -> str:
    return f"ours, {track}, {size:.4f} bits"


def work(asked: argparse.Namespace, number: int, *, textless: bool = False) -> None:
    torch.set_num_threads(asked.threads)
    model = load(find_model(asked.model), device=asked.device, dtype=torch.float32)
    known = calibration_texts(asked.calibration)
    names = asked.languages.split(",") if asked.languages else served(model, known)
    known = known.select(names)
    random = np.random.default_rng(number)
    chosen = random.permutation(min(len(own) for own in known.by_language.values()))[
        : asked.calibrating + asked.validating
    ]
    part = known.at(chosen.tolist())
    english = list(calibration_texts(asked.calibration)[language("eng").code].texts)
    english += list(read_texts(asked.english)["eng"].texts) if asked.english else []
    count = len(chosen) * len(names)
    tests = {}
    for test in asked.test.split(","):
        whole = read_split("builtin").test if test == "builtin" else read_texts(test)
        there = [name for name in names if name in whole.by_language]
        tests[Path(test).name] = whole.select(there).spread(asked.passages)
    draw = Draw(
        number, asked.out, model, copy_of(model),
        part.at(range(asked.calibrating)), part.at(range(asked.calibrating, len(chosen))),
        [english[i] for i in random.permutation(len(english))[:count]], tests, asked.effort,
    )  # fmt: skip
    if textless:
        draw.run_textless(asked.rows)
    else:
        draw.run(asked.rows, asked.tracks.split(","))


def calibration_texts(source: str) -> Texts:
    if source != "builtin":
        return read_texts(source)
    whole = read_split("builtin")
    return whole.calibration.joined(whole.validation)


def served(model: LanguageModel, texts: Texts) -> list[str]:
    profile = profile_model(model, texts.spread(4), MEASURE, outlier_kurtosis=50.0)
    return [r.language for r in profile.languages if (r.bits_per_byte or 0) <= MEASURE.served_bound]


@dataclass(frozen=True)
class Row(DrawnLosses):
    block_bits: float
    model_bits: float
    seconds: float


STATISTICS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "worst": lambda loss: loss.max(-1),
    # Of a collapsed language no ratio is quoted.
    "disparity": lambda loss: np.where(
        loss.max(-1) > COLLAPSED, np.inf, np.expm1(loss.max(-1)) - np.expm1(loss.min(-1))
    ),
    "mean": lambda loss: loss.mean(-1),
}


def read_rows(out: Path, test: str) -> tuple[dict[str, Row], list[str]]:
    draws = [json.loads(path.read_text()) for path in sorted(out.glob("draw-*.json"))]
    languages = draws[0]["original"]["languages"][test]
    rows = {}
    for name in dict.fromkeys(name for draw in draws for name in draw if name != "original"):
        having = [draw for draw in draws if name in draw]
        tokens = np.array(having[0]["original"]["tokens"][test], dtype=float).reshape(len(languages), -1)
        loss = np.stack(
            [
                (np.array(draw[name]["nll"][test]) - np.array(draw["original"]["nll"][test])).reshape(tokens.shape)
                for draw in having
            ]
        )
        mean = {
            key: float(np.mean([draw[name][key] for draw in having])) for key in ("block_bits", "model_bits", "seconds")
        }
        rows[name] = Row(loss, tokens, **mean)
    return rows, languages


def print_tables(out: Path, tests: list[str], tracks: list[Track]) -> None:
    for test in tests:
        rows, languages = read_rows(out, test)
        counts = document_counts(next(iter(rows.values())).tokens.shape[1], draws=RESAMPLES, seed=0)
        draw = np.random.default_rng(1).integers(0, 10**6, RESAMPLES)
        for track in tracks:
            print(f"\n### Test text: {test}; size of {'the blocks' if track == 'blocks' else 'the whole model'}\n")
            print(
                "| method | bits a weight | worst ΔNLL | collapsed | disparity | mean ΔNLL | seconds |\n"
                "|---|---:|---:|---:|---:|---:|---:|"
            )
            there = [c for c in CANDIDATES if c.row in rows]
            peers = [rows[c.row] for c in there]
            pairs = [(c, rows[c.row], ours) for c in there if (ours := _match(rows, peers, rows[c.row], track))]
            for candidate, peer, ours in pairs:
                for name, row in ((candidate.row, peer), ("**ours** at that size", ours)):
                    print(_table_row(name, row, track, languages, counts, draw))
            print("\nOurs over the peer at its size, paired:\n")
            print("| peer | worst | disparity | mean |\n|---|---:|---:|---:|")
            for candidate, peer, ours in pairs:
                print(f"| {candidate.row} | {' | '.join(_ratios(ours, peer, counts, draw))} |")
            for bits in BITS_CLASSES:
                _headlines(bits, [p for p in pairs if p[0].bits == bits], counts, draw)
    print_weight_errors(out)
    print_times(out, tests[0])


def print_weight_errors(out: Path) -> None:
    first = json.loads((out / "draw-0.json").read_text())
    print("\nError of the blocks' weights against the source, ‖Ŵ − W‖ / ‖W‖, first draw:\n")
    for name, row in first.items():
        # AWQ moves scales between layers, so that its weights are other ones; over the whole model ours leaves most blocks as they are.
        if "weight_error" in row and "AWQ" not in name and not name.startswith("ours, model"):
            print(f"- {name}: {row['weight_error']:.4f}")


def print_times(out: Path, test: str) -> None:
    rows, _ = read_rows(out, test)
    if THEIR_GPTQ not in rows:
        return
    theirs = rows[THEIR_GPTQ].seconds
    print(f"\nTime over that of {THEIR_GPTQ} ({theirs:.1f} s):\n")
    for name, row in rows.items():
        if name == OUR_GPTQ or name.startswith("ours, blocks"):
            print(f"- {name}: {row.seconds:.1f} s, {row.seconds / theirs:.2f}")


def _match(rows: dict[str, Row], peers: list[Row], peer: Row, track: Track) -> Row | None:
    """Our plan for the size of a peer, where it is there yet."""
    sizes = our_sizes([size_of(vars(own), track) for own in peers])
    return rows.get(our_row(track, max(size for size in sizes if size <= size_of(vars(peer), track))))


def _table_row(name: str, row: Row, track: Track, languages: list[str], counts: np.ndarray, draw: np.ndarray) -> str:
    resampled, here = row.resampled(counts, draw), row.per_language
    cells = []
    for statistic, of in STATISTICS.items():
        named = f" {languages[int(here.argmax())]} | {(here > COLLAPSED).sum()}" if statistic == "worst" else ""
        cells.append(_interval(float(of(here)), of(resampled), 3) + named)
    size = row.block_bits if track == "blocks" else row.model_bits
    return f"| {name} | {size:.3f} | {' | '.join(cells)} | {row.seconds:.0f} |"


def _ratios(ours: Row, peer: Row, counts: np.ndarray, draw: np.ndarray) -> list[str]:
    mine, theirs = ours.resampled(counts, draw), peer.resampled(counts, draw)
    cells = []
    for of in STATISTICS.values():
        value = float(of(ours.per_language) / of(peer.per_language))
        cells.append(_interval(value, of(mine) / of(theirs), 2))
    return cells


def _interval(value: float, resampled: np.ndarray, decimals: int) -> str:
    if math.isinf(value):
        return "∞"
    low, high = percentile_interval(resampled)
    return f"{value:.{decimals}f} [{low:.{decimals}f}, {high:.{decimals}f}]"


def _headlines(bits: int, pairs: list[tuple[Candidate, Row, Row]], counts: np.ndarray, draw: np.ndarray) -> None:
    """Against the best peer as people use it, and against the best one given our calibration text."""
    usual = [p for p in pairs if p[0].texts != ALL]
    for words, chosen, aims in (
        ("as people use it (English or no calibration)", usual, (0.4, 0.3, 1.0)),
        ("given our calibration text", [p for p in pairs if p[0].texts == ALL], (0.75, 0.6, 1.0)),
    ):
        if not chosen:
            continue
        print(f"\n{bits} bits, against the best peer {words}:")
        for (name, of), aim in zip(STATISTICS.items(), aims, strict=True):
            candidate, peer, ours = min(chosen, key=lambda p: float(of(p[1].per_language)))
            mine, theirs = of(ours.per_language), of(peer.per_language)
            ratio = _interval(mine / theirs, of(ours.resampled(counts, draw)) / of(peer.resampled(counts, draw)), 2)
            verdict = "reached" if mine / theirs <= aim else "missed"
            print(f"- {name}: {ratio} of {candidate.row} ({theirs:.3f}); the aim of {aim:g} is {verdict}.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="'reference', a folder or a .gguf file")
    parser.add_argument("--calibration", default="builtin", help="texts that are drawn from")
    parser.add_argument(
        "--english", help="more English text, so that English alone has as many passages as all languages"
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for the rows; resumed")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2, help="of each process")
    parser.add_argument("--languages", default="", help="with commas between; those that are served")
    parser.add_argument("--test", default="builtin", help="texts, with commas between")
    parser.add_argument("--tracks", default="blocks,model")
    parser.add_argument("--passages", type=int, default=60, help="test passages a language, at most")
    parser.add_argument("--calibrating", type=int, default=7, help="passages a language that ours is calibrated on")
    parser.add_argument("--validating", type=int, default=4, help="and validated on; the peers are calibrated on both")
    parser.add_argument("--effort", default="fast")
    parser.add_argument("--rows", default="", help="only peers whose name contains this")
    parser.add_argument("--print", action="store_true", help="only print what is there")
    asked = parser.parse_args()
    if not asked.print:
        asked.out.mkdir(parents=True, exist_ok=True)
        work(asked, 0, textless=True)
        with multiprocessing.get_context("spawn").Pool(asked.processes) as pool:
            pool.starmap(work, [(asked, number) for number in range(asked.draws)], chunksize=1)
    print_tables(asked.out, [Path(test).name for test in asked.test.split(",")], asked.tracks.split(","))


if __name__ == "__main__":
    main()
