"""The package's log lines through `logging`, for processes that import that anyway."""

from __future__ import annotations

import logging
import sys

from warmstart.log import as_json

# What logging puts on every record; everything else came in through `extra`.
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def handle(name: str, level: int, *, json_lines: bool) -> None:
    """Send the lines of a logger and those below it to standard error, in place of where an earlier call sent them."""
    logger = logging.getLogger(name)
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if json_lines else logging.Formatter("%(levelname)s %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(level)
    logger.propagate = False


class JsonLines(logging.Formatter):
    """One JSON object a line, as `log.as_json` spells it, with what `extra` gave."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line of JSON."""
        extra = {name: value for name, value in vars(record).items() if name not in _STANDARD}
        traceback = self.formatException(record.exc_info) if record.exc_info else ""
        return as_json(record.levelname.lower(), record.name, record.created, record.getMessage(), extra, traceback)
