"""Waiting for another to finish: the entry appears, its claim comes free, or the deadline passes."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from warmstart.errors import EntryInvalid, EntryNotFound, TemporaryError
from warmstart.store.model import Claim, Found

FIRST_PAUSE = 0.2
LONGEST_PAUSE = 5.0
_GROWTH = 1.5


def wait_for(
    lookup: Callable[[], Found],
    claim: Callable[[], Claim | None],
    deadline: float,
    sleep: Callable[[float], None] = time.sleep,
) -> Found | Claim | None:
    """Return the entry when it appears, a claim when one can be had, None at `deadline` (time.monotonic()).

    The entry is looked for before each try to claim, and once more after one was won: its last owner may have published in
    between, and nobody should compile what is there. A store that does not answer is asked again until the deadline.
    """
    pause = FIRST_PAUSE
    while True:
        try:
            if found := _look(lookup):
                return found
            if held := claim():
                if found := _look(lookup):
                    held.release()
                    return found
                return held
        except TemporaryError:
            if time.monotonic() + pause >= deadline:
                raise
        left = deadline - time.monotonic()
        if left <= 0:
            return None
        # Jitter, so that a thousand pods that started together do not ask together.
        sleep(min(pause * random.uniform(0.8, 1.2), left))  # noqa: S311 - no secret
        pause = min(pause * _GROWTH, LONGEST_PAUSE)


def _look(lookup: Callable[[], Found]) -> Found | None:
    """Return the entry if there is one that can be used."""
    try:
        return lookup()
    except (EntryNotFound, EntryInvalid):
        return None
