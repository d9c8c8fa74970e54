"""Ours against the peers at equal size: what the worst-off language loses, the disparity, the mean.

    python -m benchmarks.frontier reference --english CORPUS/parallel/dev --test builtin,CORPUS/parallel/test --out DIR
    python -m benchmarks.frontier MODEL --calibration TEXTS --test CORPUS/heldout --languages amh,yor,… --draws 2 --out DIR
    python -m benchmarks.frontier reference --out DIR --print
    python -m benchmarks.frontier reference --out DIR --print --against DIR        # rows of the same command in another version

Texts are 'builtin' or folders with one file per language. Peers run at their native settings (benchmarks/peers.txt names an environment for
them), calibrated on English or on all languages, on as many passages as ours. Each is compared with our plan of its size, never above it: over
the linear layers of the blocks, and over the whole model. Every draw takes other calibration passages; intervals cover other test documents
and other draws. Rows that are done are not computed again.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch

from benchmarks.frontier_tables import print_against, print_tables
from benchmarks.peers import ENGLISH, OUR_GPTQ, PEERS, Peer, our_row, our_sizes, size_of
from benchmarks.rows import TEXT_FREE, DrawRows, MeasuredRow, SizedCandidate, add_draw_arguments, read_rows
from laaciq import reference
from laaciq.backends.candidate import BackendCandidate
from laaciq.backends.registry import BACKENDS
from laaciq.backends.size import bits_per_weight
from laaciq.corpus import Split, Texts, read_split, read_texts
from laaciq.engine.store import key_of
from laaciq.models import LanguageModel, find_model, load
from laaciq.models.loading import pick_device
from laaciq.options import BUILTIN, OUTLIER_KURTOSIS, MeasureOptions, WeightOptions
from laaciq.planning.decision import SERVED_PASSAGES, calibrate, decide
from laaciq.planning.rules import served_languages
from laaciq.profiling.profile import profile_model
from laaciq.quantization.stored_layers import StoredLayers
from laaciq.trials.candidate import InMemory
from laaciq.trials.session import Session

MEASURE = MeasureOptions()
# Options that decide what a row holds; all rows in a folder share them.
SETTINGS = (
    "model", "calibration", "english", "languages", "test", "passages", "calibrating", "validating", "effort",
)  # fmt: skip


@dataclass
class Draw:
    """One draw of calibration text. `english` are the passages of the peers that are calibrated on English."""

    number: int
    rows: DrawRows
    english: list[str]
    arguments: argparse.Namespace

    @property
    def session(self) -> Session:
        return self.rows.session

    def run_text_free(self) -> None:
        self._peer_rows(reads_text=False)
        self.rows.finish()

    def run(self) -> None:
        peers = list(read_rows(self.arguments.out / TEXT_FREE).values()) + self._peer_rows(reads_text=True)
        both = self.session.split.calibration.joined(self.session.split.validation)
        gptq = WeightOptions.of(method="gptq", bits=4, group_size=128)
        # Second-order rounding alone, on the grid and the text of llmcompressor's, for its time.
        alone = self.session.on(replace(self.session.split, calibration=both), within="gptq")
        self.rows.row(OUR_GPTQ, partial(self._ours, alone, OUR_GPTQ, gptq))
        for track in self.arguments.tracks.split(","):
            for size in our_sizes([size_of(row, track) for row in peers]):
                options = WeightOptions.of(
                    method="planned", budget=size, budget_for=track, effort=self.arguments.effort
                )
                name = our_row(track, size)
                self.rows.row(name, partial(self._ours, self.session, name, options))
        self.rows.finish()

    def _peer_rows(self, *, reads_text: bool) -> list[MeasuredRow]:
        """Of the peers that run here; why others do not is printed."""
        rows = []
        for peer in PEERS:
            if self.arguments.rows in peer.row and bool(peer.texts) == reads_text:
                try:
                    rows.append(self.rows.row(peer.row, partial(self._quantized_peer, peer)))
                except Exception as error:  # a library may raise anything
                    print(f"{self.rows.folder.name}: {peer.row} failed: {error!r}", flush=True)
        return rows

    def _quantized_peer(self, peer: Peer) -> SizedCandidate:
        candidate = BackendCandidate(
            peer.row,
            key_of(peer.row),
            self.session.original,
            BACKENDS[peer.backend],
            peer.bits,
            lambda: self.english if peer.texts == ENGLISH else self._all_languages(),
        )
        result, seconds = candidate.quantized
        return SizedCandidate(candidate, *bits_per_weight(result, self.session.original.anatomy), seconds)

    def _all_languages(self) -> list[str]:
        """What ours calibrates and validates on, shuffled."""
        both = self.session.split.calibration.joined(self.session.split.validation)
        texts = [text for passages in both.by_language.values() for text in passages.texts]
        return [texts[place] for place in np.random.default_rng(self.number).permutation(len(texts))]

    @staticmethod
    def _ours(session: Session, name: str, options: WeightOptions) -> SizedCandidate:
        began = time.perf_counter()
        calibration = calibrate(session, options)
        plan = decide(session, options, calibration).plans.first
        layers, others = session.quantized(plan, calibration)
        quantized = StoredLayers.of(layers, session.original.device), others
        if session.place.type == "cuda":
            torch.cuda.synchronize()
        seconds = time.perf_counter() - began
        candidate = InMemory(name, key_of(name), plan, lambda: quantized)
        return SizedCandidate(candidate, plan.size.block_bits_per_weight, plan.size.model_bits_per_weight, seconds)


def open_draw(arguments: argparse.Namespace, number: int, folder: str) -> Draw:
    torch.set_num_threads(arguments.threads)
    model = load(find_model(arguments.model), device=arguments.device, dtype=torch.float32)
    available = calibration_texts(arguments.calibration)
    codes = arguments.languages.split(",") if arguments.languages else served(model, available)
    known = available.select(codes)
    random = np.random.default_rng(number)
    count = arguments.calibrating + arguments.validating
    chosen = random.permutation(min(map(len, known.by_language.values())))[:count]
    drawn = known.at(chosen.tolist())
    english = list(available["eng"].texts)
    english += list(read_texts(arguments.english)["eng"].texts) if arguments.english else []
    order = random.permutation(len(english))[: len(chosen) * len(known.languages)]
    calibration, validation = drawn.at(range(arguments.calibrating)), drawn.at(range(arguments.calibrating, count))
    tests = {
        test_name(test): test_texts(test, known.languages, arguments.passages) for test in arguments.test.split(",")
    }
    session = Session.of(model, Split(calibration, validation, validation), MEASURE)
    settings = {"benchmark": "frontier", "device": model.device.type} | {
        name: str(getattr(arguments, name)) for name in SETTINGS
    }
    rows = DrawRows(arguments.out / folder, settings, session, tests, overwrite=arguments.overwrite)
    return Draw(number, rows, [english[place] for place in order], arguments)


def calibration_texts(source: str) -> Texts:
    if source != BUILTIN:
        return read_texts(source)
    builtin = read_split(BUILTIN).select(reference.languages())
    return builtin.calibration.joined(builtin.validation)


def served(model: LanguageModel, texts: Texts) -> list[str]:
    profile = profile_model(model, texts.spread(SERVED_PASSAGES), MEASURE, outlier_kurtosis=OUTLIER_KURTOSIS)
    return served_languages(profile, MEASURE.served_bound)


def test_texts(source: str, codes: list[str], passages: int) -> Texts:
    """In those of the languages that the source has."""
    texts = read_split(BUILTIN).test if source == BUILTIN else read_texts(source)
    return texts.select([code for code in codes if code in texts.by_language]).spread(passages)


def test_name(source: str) -> str:
    return "/".join(Path(source).parts[-2:])


def work(arguments: argparse.Namespace, number: int) -> None:
    open_draw(arguments, number, f"draw-{number}").run()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="'reference', a folder or a .gguf file")
    parser.add_argument("--calibration", default=BUILTIN, help="texts that calibration passages are drawn from")
    parser.add_argument(
        "--english", help="more English text, so that English alone has as many passages as all languages"
    )
    add_draw_arguments(parser)
    parser.add_argument("--languages", default="", help="codes with commas between; by default those that are served")
    parser.add_argument("--test", default=BUILTIN, help="test texts, with commas between")
    parser.add_argument("--tracks", default="blocks,model", help="sizes that are compared: blocks, model or both")
    parser.add_argument("--passages", type=int, default=60, help="test passages per language, at most")
    parser.add_argument("--calibrating", type=int, default=7, help="passages per language that ours is calibrated on")
    parser.add_argument("--validating", type=int, default=4, help="and validated on; the peers are calibrated on both")
    parser.add_argument("--effort", default="fast")
    parser.add_argument("--rows", default="", help="only peers whose name contains this")
    parser.add_argument("--print", action="store_true", help="only print the rows that are there")
    parser.add_argument(
        "--against", type=Path, help="rows of the same command in another version: ours over those, paired"
    )
    arguments = parser.parse_args()
    if unknown := set(arguments.tracks.split(",")) - {"blocks", "model"}:
        parser.error(f"--tracks {unknown.pop()!r} is unknown: give blocks, model or blocks,model")
    if not arguments.print:
        pick_device(arguments.device)
        open_draw(arguments, 0, TEXT_FREE).run_text_free()
        with multiprocessing.get_context("spawn").Pool(arguments.processes) as pool:
            pool.starmap(work, [(arguments, number) for number in range(arguments.draws)], chunksize=1)
    tests = [test_name(test) for test in arguments.test.split(",")]
    print_tables(arguments.out, tests, arguments.tracks.split(","))
    if arguments.against is not None:
        print_against(arguments.out, arguments.against, tests)


if __name__ == "__main__":
    main()
