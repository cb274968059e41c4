"""Log lines: the standard library's loggers, but imported only where somebody else has use for them.

A hit writes two lines, and importing `logging` takes longer than all that a hit has to say. So lines are written here, in the
same forms, for as long as nothing in this process has imported `logging`; from then on they go through it.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import logging

_ROOT = "warmstart"
_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}


class _Form:
    """How lines are written, once `start` was called: least level and form. `handled` says that `logging` was told too."""

    level = 0
    json = False
    handled = False


def start(level: str = "info", form: str = "auto") -> None:
    """Send the package's log lines to standard error, in place of where an earlier call sent them.

    `form` is json, text, or auto: text on a terminal.
    """
    if form == "auto":
        form = "text" if sys.stderr is not None and sys.stderr.isatty() else "json"
    _Form.level, _Form.json, _Form.handled = _LEVELS[level], form == "json", False
    if "logging" in sys.modules:
        _standard(_ROOT)


class Log:
    """A logger of the package, by its name. Texts are %-formatted with the arguments, as in `logging`."""

    def __init__(self, name: str) -> None:
        self.name = name

    def debug(self, text: str, *args: object, exc_info: BaseException | None = None) -> None:
        """Log what only a developer wants to know."""
        self.log("debug", text, *args, exc_info=exc_info)

    def info(self, text: str, *args: object, extra: Mapping[str, object] | None = None) -> None:
        """Log what is as it should be."""
        self.log("info", text, *args, extra=extra)

    def warning(self, text: str, *args: object) -> None:
        """Log what somebody should look at."""
        self.log("warning", text, *args)

    def log(
        self,
        level: str,
        text: str,
        *args: object,
        exc_info: BaseException | None = None,
        extra: Mapping[str, object] | None = None,
    ) -> None:
        """Log a line; `extra` are further fields of its JSON form, `exc_info` an error whose traceback is added."""
        if "logging" in sys.modules or not _Form.level:
            _standard(self.name).log(_LEVELS[level], text, *args, exc_info=exc_info, extra=extra)
        elif _LEVELS[level] >= _Form.level and sys.stderr is not None:
            message = text % args if args else text
            told = _traceback(exc_info) if exc_info else ""
            if _Form.json:
                _write(as_json(level, self.name, time.time(), message, extra or {}, told))
            else:
                _write(f"{level.upper()} {message}" + (f"\n{told}" if told else ""))


def as_json(level: str, name: str, moment: float, message: str, extra: Mapping[str, object], traceback: str) -> str:
    """Return one line: time (UTC, RFC 3339), level, logger, message, further fields."""
    line: dict[str, object] = {
        "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(moment)) + f".{int(moment % 1 * 1000):03d}Z",
        "level": level,
        "logger": name,
        "message": message,
        **extra,
    }
    if traceback:
        line["traceback"] = traceback
    return json.dumps(line, ensure_ascii=False, default=str)


def _write(line: str) -> None:
    try:
        sys.stderr.write(line + "\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        # A log that cannot be written must not change what is logged.
        return


def _traceback(error: BaseException) -> str:
    import traceback

    return "".join(traceback.format_exception(error)).rstrip("\n")


def _standard(name: str) -> logging.Logger:
    """Return the standard library's logger, with our handler where `start` was called since it was asked for last."""
    import logging

    if _Form.level and not _Form.handled:
        from warmstart.logging_handler import handle

        handle(_ROOT, _Form.level, json_lines=_Form.json)
        _Form.handled = True
    return logging.getLogger(name)
