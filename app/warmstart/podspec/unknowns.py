"""Values that only the running pod knows, carried through expansion as opaque marks inside the text that holds them.

A mark stands for a piece of text such as `$(POD_IP)`. Quoting, splitting and option parsing treat it as a letter; at the end
`reveal` puts the source text back and says where each value would come from.
"""

from __future__ import annotations

from typing import NamedTuple

from warmstart.errors import SpecError
from warmstart.pattern import pattern

_OPEN, _CLOSE = "\ue000", "\ue001"
_MARK = pattern(f"{_OPEN}([0-9]+){_CLOSE}")

_WRITTEN = pattern(r"[\ue000\ue001]|\\(?:u|U0000)[eE]00[01]")
"""The characters, or how JSON and YAML write them."""


class Unknown(NamedTuple):
    """A piece of text whose value is not known: how the spec spells it, and where the value would come from."""

    spelled: str
    why: str


class Unknowns:
    """The marks of one container. Texts from outside pass `refuse_marks` before any mark is made."""

    def __init__(self) -> None:
        self._known: list[Unknown] = []

    def mark(self, spelled: str, why: str) -> str:
        """Return a mark for a value that is not known."""
        self._known.append(Unknown(spelled, why))
        return f"{_OPEN}{len(self._known) - 1}{_CLOSE}"

    def within(self, text: str) -> tuple[Unknown, ...]:
        """Return what the text holds that is not known, in order."""
        return tuple(self._known[int(found)] for found in _MARK.findall(text))

    def reveal(self, text: str) -> str:
        """Return the text as the spec spells it."""
        while _OPEN in text:
            text = _MARK.sub(lambda found: self._known[int(found.group(1))].spelled, text)
        return text


def refuse_marks(text: str, source: str) -> None:
    """Raise SpecError where a text from outside already holds the characters that marks are made of."""
    if (not text.isascii() or "\\" in text) and _WRITTEN.search(text):
        raise SpecError(f"{source} holds characters of the private use area (U+E000, U+E001)")
