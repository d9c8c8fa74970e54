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
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path

import numpy as np
import torch

from benchmarks.draws import Draw, add_draw_arguments, make_draws, open_session
from benchmarks.frontier_tables import print_against, print_tables
from benchmarks.peers import ENGLISH, OUR_GPTQ, PEERS, Peer, our_row, our_sizes, size_of
from benchmarks.rows import TEXT_FREE, DrawRows, MeasuredRow, SizedCandidate, read_rows
from laaciq import reference
from laaciq.backends.candidate import BackendCandidate
from laaciq.backends.registry import BACKENDS
from laaciq.backends.size import bits_per_weight
from laaciq.corpus import Split, Texts, read_split, read_texts
from laaciq.options import BUILTIN, WeightOptions
from laaciq.planning.decision import SERVED_PASSAGES, calibrate, decide
from laaciq.planning.estimate import estimate_stages
from laaciq.planning.rules import served_languages
from laaciq.quantization.stored_layers import StoredLayers
from laaciq.trials.candidate import InMemory
from laaciq.trials.session import Session


@dataclass(frozen=True)
class FrontierDraw(Draw):
    """`english` are the passages that peers are drawn from which are calibrated on English."""

    english: list[str]

    def settings(self) -> Iterable[str]:
        return (
            "model", "calibration", "english", "languages", "test", "passages", "calibrating", "validating", "effort",
        )  # fmt: skip

    def split(self) -> Split:
        calibrating, count = self.arguments.calibrating, self.arguments.calibrating + self.arguments.validating
        drawn = self.texts.at(self._orders()[0][:count].tolist())
        validation = drawn.at(range(calibrating, count))
        return Split(drawn.at(range(calibrating)), validation, validation)

    def _orders(self) -> tuple[np.ndarray, np.ndarray]:
        """Of the passages in all languages, and of the English ones."""
        random = np.random.default_rng(self.number or 0)
        return random.permutation(min(map(len, self.texts.by_language.values()))), random.permutation(len(self.english))

    def make(self, rows: DrawRows) -> None:
        if self.number is None:
            self._peer_rows(rows, reads_text=False)
            return
        session = rows.session
        peers = list(read_rows(rows.folder.parent / TEXT_FREE).values()) + self._peer_rows(rows, reads_text=True)
        gptq = WeightOptions.of(method="gptq", bits=4, group_size=128)
        # Second-order rounding alone, on the grid and the text of llmcompressor's, for its time.
        alone = session.on(replace(session.split, calibration=_whole(session)), within="gptq")
        rows.row(OUR_GPTQ, partial(_ours, alone, OUR_GPTQ, gptq))
        for track in self.arguments.tracks.split(","):
            for size in our_sizes([size_of(row, track) for row in peers]):
                options = WeightOptions.of(
                    method="planned", budget=size, budget_for=track, effort=self.arguments.effort
                )
                name = our_row(track, size)
                rows.row(name, partial(_ours, session, name, options))

    def _peer_rows(self, rows: DrawRows, *, reads_text: bool) -> list[MeasuredRow]:
        """Of the peers that run here; why others do not is printed."""
        made = []
        for peer in PEERS:
            if self.arguments.rows in peer.row and bool(peer.texts) == reads_text:
                try:
                    made.append(rows.row(peer.row, partial(self._quantized_peer, rows.session, peer)))
                except Exception as error:  # a library may raise anything
                    rows.session.progress.say(f"{self.name}: {peer.row} failed: {error!r}")
        return made

    def _quantized_peer(self, session: Session, peer: Peer, key: str) -> SizedCandidate:
        candidate = BackendCandidate(
            peer.row,
            key,
            session.original,
            BACKENDS[peer.backend],
            peer.bits,
            lambda: self._english(session) if peer.texts == ENGLISH else self._all_languages(session),
        )
        result, seconds = candidate.quantized
        return SizedCandidate(candidate, *bits_per_weight(result, session.original.anatomy), seconds)

    def _english(self, session: Session) -> list[str]:
        """As many passages as ours reads in all languages, or all there are."""
        count = sum(map(len, _whole(session).by_language.values()))
        return [self.english[place] for place in self._orders()[1][:count]]

    def _all_languages(self, session: Session) -> list[str]:
        """What ours calibrates and validates on, shuffled."""
        texts = [text for passages in _whole(session).by_language.values() for text in passages.texts]
        return [texts[place] for place in np.random.default_rng(self.number).permutation(len(texts))]


def _whole(session: Session) -> Texts:
    return session.split.calibration.joined(session.split.validation)


def _ours(session: Session, name: str, options: WeightOptions, key: str) -> SizedCandidate:
    began = time.perf_counter()
    calibration = calibrate(session, options)
    plan = decide(session, options, calibration).plans.first
    layers, others = session.quantized(plan, calibration)
    quantized = StoredLayers.of(layers, session.original.device), others
    if session.place.type == "cuda":
        torch.cuda.synchronize()
    seconds = time.perf_counter() - began
    candidate = InMemory(name, key, plan, lambda: quantized)
    return SizedCandidate(candidate, plan.size.block_bits_per_weight, plan.size.model_bits_per_weight, seconds)


def calibration_texts(source: str) -> Texts:
    if source != BUILTIN:
        return read_texts(source)
    builtin = read_split(BUILTIN).select(reference.languages())
    return builtin.calibration.joined(builtin.validation)


def served(session: Session, texts: Texts) -> Texts:
    """Those of the languages that the model serves."""
    profile = session.profile(texts.spread(SERVED_PASSAGES))
    return texts.select(served_languages(profile, session.options.served_bound))


def test_texts(source: str, codes: list[str], passages: int) -> Texts:
    """In those of the languages that the source has."""
    texts = read_split(BUILTIN).test if source == BUILTIN else read_texts(source)
    return texts.select([code for code in codes if code in texts.by_language]).spread(passages)


def test_name(source: str) -> str:
    return "/".join(Path(source).parts[-2:])


def run(arguments: argparse.Namespace) -> None:
    available = calibration_texts(arguments.calibration)
    chosen = available.select(arguments.languages.split(",")) if arguments.languages else available
    with open_session(arguments.model, arguments, Split(chosen, chosen, chosen)) as session:
        largest = WeightOptions.of(method="planned", budget=4.25, effort=arguments.effort)
        session.reserve_workers(estimate_stages(session.costs, session.split, largest))
        texts = chosen if arguments.languages else served(session, chosen)
        tests = {
            test_name(test): test_texts(test, texts.languages, arguments.passages) for test in arguments.test.split(",")
        }
        english = list(available["eng"].texts)
        english += list(read_texts(arguments.english)["eng"].texts) if arguments.english else []
        # Sizes of ours are those of the peers, which have to be known in all draws.
        for numbers in ([None], range(arguments.draws)):
            make_draws(session, [FrontierDraw(number, arguments, texts, tests, english) for number in numbers])


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
        run(arguments)
    tests = [test_name(test) for test in arguments.test.split(",")]
    print_tables(arguments.out, tests, arguments.tracks.split(","))
    if arguments.against is not None:
        print_against(arguments.out, arguments.against, tests)


if __name__ == "__main__":
    # By its name: workers import the classes of what they receive.
    import_module("benchmarks.frontier").main()
