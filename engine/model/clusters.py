"""Keeps what a reader sees as one character together in a stream. Pure; knows no tokens.

Held back is only what is likely to go on: a joiner or a virama, an emoji (its skin tone, its
family), half a flag, and the last letter of scripts that write vowels as marks. Latin, Cyrillic,
Greek, Chinese, Japanese and Korean letters go out at once: waiting for an accent that may follow
would hold every one of their tokens back (UAX #29 knows the same clusters).
"""

from __future__ import annotations

import unicodedata

MOST_HELD = 32  # characters; a chain of marks without end is cut, not kept for ever
_ZWJ, _ZWNJ = "\u200d", "\u200c"
_VIRAMA = 9  # its combining class
# Scripts whose vowels and tones are marks after the letter: Hebrew to Syriac, the Indic ones,
# Thai to Myanmar, Khmer.
_MARKED = ((0x0590, 0x08FF), (0x0900, 0x109F), (0x1780, 0x17FF), (0xA8E0, 0xA8FF))
_PICTURES = ((0x203C, 0x203C), (0x2049, 0x2049), (0x2190, 0x2BFF), (0x1F000, 0x1FAFF))
_FLAGS = (0x1F1E6, 0x1F1FF)


class Clusters:
    """Text goes in by `push`; what comes out ends where a character does. Joined, it is the same
    text."""

    def __init__(self) -> None:
        self._held = ""

    def push(self, text: str) -> str:
        if not text:
            return ""
        text = self._held + text
        cut = _last_open(text)
        if len(text) - cut > MOST_HELD:
            cut = len(text)
        self._held = text[cut:]
        return text[:cut]

    def finish(self) -> str:
        held, self._held = self._held, ""
        return held


def _last_open(text: str) -> int:
    """Where the last cluster begins, when it may go on; else the text's end."""
    if text[-1].isascii():
        return len(text)
    at = len(text) - 1
    while at > 0 and _continues(text, at):
        at -= 1
    if _in(text[at], (_FLAGS,)):
        first = at
        while first > 0 and _in(text[first - 1], (_FLAGS,)):
            first -= 1
        # Flags are pairs: the second of one is complete, and nothing follows it.
        return at if (at - first) % 2 == 0 else len(text)
    goes_on = text[-1] in (_ZWJ, _ZWNJ) or unicodedata.combining(text[-1]) == _VIRAMA
    if goes_on or _in(text[at], _MARKED) or _in(text[at], _PICTURES):
        return at
    return len(text)


def _continues(text: str, at: int) -> bool:
    """Whether the character at `at` belongs to the one before it."""
    before = text[at - 1]
    return (
        _extends(text[at])
        or before == _ZWJ
        or (unicodedata.combining(before) == _VIRAMA and text[at].isalpha())
    )


def _extends(char: str) -> bool:
    code = ord(char)
    return (
        char in (_ZWJ, _ZWNJ)
        or unicodedata.category(char)[0] == "M"
        or 0x1F3FB <= code <= 0x1F3FF  # skin tones
        or 0xE0020 <= code <= 0xE007F  # tags, in flags of regions
    )


def _in(char: str, ranges: tuple[tuple[int, int], ...]) -> bool:
    return any(low <= ord(char) <= high for low, high in ranges)
