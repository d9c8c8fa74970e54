"""Continuations of a candidate and of the original, language by language, kept in the session's store."""

from __future__ import annotations

from functools import partial

from laaciq.corpus import Passages, Texts
from laaciq.evaluation.continuations import Continuations
from laaciq.evaluation.generation import NEW_TOKENS, continue_prompts, default_prompts
from laaciq.trials.candidate import Candidate
from laaciq.trials.session import Session

# Folder of the continuations in a run: one file per language.
GENERATION = "generation"


def prompts_per_language(session: Session, requested: int | None) -> int:
    return requested or default_prompts(session.place.type)


def generate_continuations(
    session: Session, candidate: Candidate, texts: Texts, *, prompts: int
) -> list[Continuations]:
    """All languages. Those in the store are not generated again."""

    def generate(passages: Passages) -> Continuations:
        with candidate.applied(session.copy(), passages.language.code) as quantized:
            return continue_prompts(
                session.original, quantized, passages, prompts=prompts, chat=session.options.chat, advance=advance
            )

    results = []
    pending = [
        passages for passages in texts.by_language.values() if not _done(session, candidate.key, passages, prompts)
    ]
    total = sum(min(prompts, len(passages)) for passages in pending)
    with session.progress.stage("generating", total) as advance:
        for passages in texts.by_language.values():
            name, key = _file(passages), _key(session, candidate.key, passages, prompts)
            results.append(session.store.result(name, Continuations, key, partial(generate, passages)))
    return results


def generated(session: Session, candidate_key: str, texts: Texts, *, prompts: int) -> bool:
    """True if the continuations of all languages are in the store."""
    return all(_done(session, candidate_key, passages, prompts) for passages in texts.by_language.values())


def _done(session: Session, candidate_key: str, passages: Passages, prompts: int) -> bool:
    return session.store.valid(_file(passages), _key(session, candidate_key, passages, prompts))


def _file(passages: Passages) -> str:
    return f"{GENERATION}/{passages.language.code}.json"


def _key(session: Session, candidate_key: str, passages: Passages, prompts: int) -> str:
    return session.key(passages, "continuations", candidate_key, min(prompts, len(passages)), NEW_TOKENS)
