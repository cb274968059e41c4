"""Every error that warmstart raises on purpose.

    WarmstartError
    ├── UsageError                 the call, a file or a setting is wrong: change it            exit 2
    │   ├── SpecError              a pod spec, or the vLLM command in it, cannot be understood
    │   ├── ModelFilesError        config.json or a companion is missing, gated or broken
    │   ├── UnknownGpuError        a GPU name that the catalog does not hold, or an ambiguous one
    │   └── UnsupportedError       this vLLM version, or this combination of options
    ├── EntryNotFound              the store holds no entry for a key                           exit 10
    ├── EntryInvalid               an entry is damaged, oversized or of a newer format          exit 11
    │   └── EntryNotTrusted        an entry is unsigned, or signed by a key not trusted
    ├── CompileError               the compile pass failed, or its result is not what a server loads   exit 12
    │   └── SeamError              a seam into torch or vLLM does not fit the installed version
    ├── TemporaryError             the same call may succeed later                              exit 75
    │   ├── StoreUnavailable       the store does not answer
    │   └── NoSpaceError           a disk or quota is full
    └── AccessDenied               the store or the API server refuses these credentials        exit 2

Exit codes are given here for the reader; `cli.py` alone maps them. A message is one line that says what is wrong and where;
`hint` says what to do about it. Text that came from outside (a server's answer, a parser) passes `shorten` first.
"""

from __future__ import annotations

_LONGEST_FOREIGN_TEXT = 300


class WarmstartError(Exception):
    """Base of all errors raised on purpose. `str()` gives one line: the message and, after a semicolon, the hint."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = " ".join(message.split())
        self.hint = " ".join(hint.split())

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message


class UsageError(WarmstartError):
    """The call, a file given to it, or a setting is wrong."""


class SpecError(UsageError):
    """A pod spec, or the vLLM command inside it, cannot be understood."""


class ModelFilesError(UsageError):
    """A model's config.json or one of its companions is missing, gated or broken."""


class UnknownGpuError(UsageError):
    """A GPU name that the catalog does not hold, or one that covers several cards."""


class UnsupportedError(UsageError):
    """The installed vLLM, or a combination of options, is one that warmstart does not compile for."""


class EntryNotFound(WarmstartError):
    """The store holds no entry for the key."""


class EntryInvalid(WarmstartError):
    """An entry is damaged, larger than it says, or of a format newer than this program."""


class EntryNotTrusted(EntryInvalid):
    """An entry has no signature where one is required, or one by a key that is not trusted."""


class CompileError(WarmstartError):
    """The compile pass failed, or it left something other than what a server would load."""


class SeamError(CompileError):
    """A seam into torch or vLLM does not fit the installed version."""

    def __init__(self, seam: str, found: str, detail: str) -> None:
        super().__init__(
            f"seam {seam} does not fit {found}: {detail}",
            hint="use a vLLM version listed in docs/compatibility.md, or report this line",
        )


class TemporaryError(WarmstartError):
    """Nothing is wrong with the call; the same call may succeed later."""


class StoreUnavailable(TemporaryError):
    """The store does not answer, or answers that it cannot."""


class NoSpaceError(TemporaryError):
    """A disk, volume or quota is full."""


class AccessDenied(WarmstartError):
    """The store or the API server refuses these credentials."""


def shorten(text: object, limit: int = _LONGEST_FOREIGN_TEXT) -> str:
    """Return foreign text as one line of at most `limit` characters, fit for a log or a termination message."""
    line = " ".join(str(text).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
