"""Detection of garbled text: what users notice first when a quantized model breaks."""

from __future__ import annotations

from laaciq.corpus.identification import letters_in_script

# A text ends in a loop if a unit of at most this many characters occurs at least this many times, over at least this share of the text.
LONGEST_UNIT = 24
TURNS = 4
LOOPED_SHARE = 1 / 4
# A text repeats itself if less than this share of its runs of 8 characters are distinct. A sentence repeated three times reaches 0.4 at
# most in every script; the built-in passages reach 0.82 and more, alone or together.
RUN = 8
LEAST_DIFFERENT = 0.5
# U+FFFD at the very end that a character cut by the token limit can leave: byte-level vocabularies write one for all of its bytes,
# byte-fallback ones (Llama 2, Gemma) one for each.
CUT_CHARACTER = 3


def garbled(text: str, script: str) -> bool:
    """True if the text is garbled, that is, not text in `script` (named as in `Language.script`). Any of:

    - it has no letters, or less than half of them belong to the script;
    - it contains U+FFFD, other than for one character at the very end, which the token limit may have cut;
    - it ends in a loop: a unit of up to 24 characters, 4 times or more, over at least a quarter of the text;
    - it repeats itself: more than half of its runs of 8 characters occurred before (`repetition`; in characters because not every script
      separates words).
    """
    bare = text.strip()
    whole = bare.rstrip("\ufffd")
    if "\ufffd" in whole or len(bare) - len(whole) > CUT_CHARACTER:
        return True
    return letters_in_script(whole, script) < 0.5 or _ends_in_a_loop(whole) or repetition(whole) > 1 - LEAST_DIFFERENT


def _ends_in_a_loop(text: str) -> bool:
    for unit in range(1, min(LONGEST_UNIT, len(text) // TURNS) + 1):
        run = unit
        while run < len(text) and text[-run - 1] == text[unit - run - 1]:
            run += 1
        if run >= max(TURNS * unit, LOOPED_SHARE * len(text)):
            return True
    return False


def repetition(text: str) -> float:
    """The share of runs of 8 characters that occurred before in the text: seq-rep-n (Welleck et al. 2020), in characters."""
    runs = [text[begin : begin + RUN] for begin in range(max(1, len(text) - RUN + 1))]
    return 1 - len(set(runs)) / len(runs)
