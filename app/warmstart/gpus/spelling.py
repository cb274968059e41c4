"""How GPU names are spelled, and how two spellings of one name are recognised as the same.

Owns only text: what a spelling means is the catalog's business.
"""

from __future__ import annotations

import re

from warmstart.pattern import pattern

LONGEST_NAME = 256
"""Longest text taken for a GPU name; NVML's own limit is 96 and a label value's 63 characters."""

_MAKER_WORDS = ("nvidia", "tesla", "geforce", "quadro")
_NOT_PLAIN = pattern(r"[^a-z0-9]+")
_SHARED = pattern(r"[-_ ]shared$", re.IGNORECASE)
_MIG = pattern(r"^(?P<card>.*?)(?:^|[-_ ])mig[-_ ](?P<profile>.+)$", re.IGNORECASE | re.DOTALL)
_MEDIA = pattern(r"[.+-](?:me|gfx)(?:[.+-](?:all|none))?$", re.IGNORECASE)


def plain(text: str) -> str:
    """Return the letters and digits of a name in lower case, without the maker's and brand's words in front.

    "NVIDIA-Tesla-T4", "Tesla T4" and "t4" are one plain name. Memory written with a space ("80 GB") is the same as without.
    """
    name = _NOT_PLAIN.sub("", text.lower())
    while True:
        word = next((word for word in _MAKER_WORDS if name.startswith(word) and len(name) > len(word)), None)
        if word is None:
            return name
        name = name[len(word) :]


def without_sharing(text: str) -> str:
    """Return a GPU feature discovery product name without `-SHARED`, which says how a card is shared, not which it is."""
    return _SHARED.sub("", text.strip())


def split_mig(text: str) -> tuple[str, str | None]:
    """Split "CARD-MIG-1g.5gb" or "CARD MIG 1g.5gb" into card and plain profile; (text, None) for a whole card.

    A media or graphics extension ("1g.10gb+me", in labels "1g.10gb.me") is dropped: it changes neither the
    multiprocessors nor the memory of the slice.
    """
    match = _MIG.match(text)
    if match is None:
        return text, None
    return match["card"], plain(_MEDIA.sub("", match["profile"]))
