"""How a call ends, and where that is told: standard output, the log, the termination message, metrics.

Nothing here raises for a place that cannot be written: a result that is not delivered must not change the result.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from warmstart.errors import WarmstartError, shorten
from warmstart.log import Log
from warmstart.value import Value

LOG = Log("warmstart")
TERMINATION_LOG = Path("/dev/termination-log")
TERMINATION_LIMIT = 4096
_SHORT_REASON = 800


class Result(Value, kw_only=True):
    """What one call came to.

    `outcome` is one of: hit, compiled, nothing-to-compile, miss, published, used, partly, ignored, failed, terminated.
    `reason` says why in one line, `error` the class of the error behind it. Bytes are those of the entry's files unpacked
    (`raw_bytes`) and in the store (`stored_bytes`); `seconds` is the whole call, `compile_seconds` the compile pass alone.
    """

    command: str
    outcome: str
    reason: str = ""
    error: str = ""
    model: str = ""
    request_key: str = ""
    gpu: str = ""
    vllm: str = ""
    aot_keys: tuple[str, ...] = ()
    modules: int = 0
    graphs: int = 0
    ranks: int = 0
    raw_bytes: int = 0
    stored_bytes: int = 0
    gpu_memory_bytes: int = 0
    compile_seconds: float = 0.0
    seconds: float = 0.0
    cache_root: str = ""
    warnings: tuple[str, ...] = ()

    def document(self) -> dict[str, Any]:
        """Return the result as a JSON object, with a fixed order of fields and seconds to the millisecond."""
        document = self.items()
        for field in ("compile_seconds", "seconds"):
            document[field] = round(document[field], 3)
        return {name: list(value) if isinstance(value, tuple) else value for name, value in document.items()}

    def text(self) -> str:
        """Return the result for people: the outcome, then what is known, one fact a line."""
        facts = {
            name: value
            for name, value in self.document().items()
            if value and name not in {"command", "outcome", "reason", "warnings"}
        }
        lines = [f"{self.command}: {self.outcome}" + (f": {self.reason}" if self.reason else "")]
        lines += [f"  {name.replace('_', ' '):<17} {_people(name, value)}" for name, value in facts.items()]
        return "\n".join(lines + [f"  warning: {warning}" for warning in self.warnings])


def describe(error: BaseException) -> str:
    """Return an error as one line that says what happened; ours say what to do as well."""
    if isinstance(error, WarmstartError):
        return shorten(error, 1000)
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    if isinstance(error, Exception):
        return f"unexpected {type(error).__name__}: {shorten(error)}; please report this; WARMSTART_LOG_LEVEL=debug shows more"
    return shorten(error)


def failure(command: str, error: BaseException, **known: Any) -> Result:
    """Return the result of a call that an error ended, with what was `known` by then."""
    outcome = getattr(error, "outcome", "failed" if isinstance(error, Exception) else "terminated")
    return Result(command=command, outcome=outcome, reason=describe(error), error=type(error).__name__, **known)


def publish(result: Result, *, termination_log: Path | None) -> None:
    """Tell a result to the log and the termination message."""
    level = "warning" if result.outcome in {"failed", "terminated", "ignored", "partly"} else "info"
    reason = f": {result.reason}" if result.reason else ""
    LOG.log(level, "%s: %s%s", result.command, result.outcome, reason, extra={"result": result.document()})
    write_termination(result, termination_log)


def write_termination(result: Result, target: Path | None) -> None:
    """Write the result where the kubelet reads it, as compact JSON below its limit of 4096 bytes; never raise.

    The default path is written only where it exists: outside of a container nobody has asked for a file in /dev.
    """
    if target is None:
        if not TERMINATION_LOG.exists():
            return
        target = TERMINATION_LOG
    try:
        target.write_bytes(termination_message(result))
    except OSError as error:
        LOG.debug("cannot write the termination message to %s: %s", target, error)


def termination_message(result: Result) -> bytes:
    """Return the result as JSON of less than 4096 bytes: empty fields left out, long ones cut, lists counted."""
    document = {name: value for name, value in result.document().items() if value not in ("", 0, 0.0, [], None)}
    encoded = _compact(document)
    for field, cut in (
        ("warnings", 3),
        ("aot_keys", 8),
        ("reason", _SHORT_REASON),
        ("warnings", 0),
        ("cache_root", 200),
        ("model", 200),
        ("reason", 200),
        ("aot_keys", 1),
    ):
        if len(encoded) < TERMINATION_LIMIT:
            return encoded
        value = document.get(field)
        if isinstance(value, str):
            document[field] = shorten(value, cut)
        elif isinstance(value, list) and len(value) > cut:
            document[field] = [shorten(item, 100) for item in value[:cut]]
            document[f"{field}_total"] = max(len(value), document.get(f"{field}_total", 0))
        encoded = _compact(document)
    if len(encoded) < TERMINATION_LIMIT:
        return encoded
    return _compact({name: shorten(getattr(result, name), 64) for name in ("command", "outcome", "error", "request_key")})


def _compact(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode(errors="replace")


def _people(name: str, value: Any) -> str:
    if name.endswith("_bytes"):
        for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
            if value >= size:
                return f"{value / size:.1f} {unit}"
        return f"{value} B"
    if name.endswith("seconds"):
        return f"{value:.2f} s"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
