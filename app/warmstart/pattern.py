"""Regular expressions that are compiled when they are first used: a start needs a third of those in its modules."""

from __future__ import annotations

import re
from typing import Any, AnyStr, cast


class _Lazy:
    """Stands in for a compiled pattern; takes its methods over with the first use."""

    def __init__(self, text: str | bytes, flags: int) -> None:
        self._text = text
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        compiled = re.compile(self._text, self._flags)
        for method in ("match", "fullmatch", "search", "findall", "finditer", "sub", "split", "pattern"):
            setattr(self, method, getattr(compiled, method))
        return getattr(compiled, name)


def pattern(text: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return a pattern, as `re.compile` does, but without a look at the text: what is wrong with it shows when it is used."""
    return cast("re.Pattern[AnyStr]", _Lazy(text, flags))
