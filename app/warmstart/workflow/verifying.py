"""`warmstart verify`, beside a started server: whether it used what was installed, and if not, why.

The server's log is exact. Without it the cache folder is read: what is newer than the installation's marker was written by
the server, and vLLM makes a folder beside each artifact that it looks up.
"""

from __future__ import annotations

import dataclasses
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from warmstart.errors import EntryNotFound, TemporaryError, UsageError, WarmstartError, shorten
from warmstart.identity.serverlog import ServerLog, read_log
from warmstart.workflow import entries, resolve
from warmstart.workflow.run import Progress

if TYPE_CHECKING:
    from warmstart.identity.differences import Difference
    from warmstart.report import Result
    from warmstart.settings import Settings

EXIT_NOT_USED = 10
_AOT = "torch_compile_cache/torch_aot_compile"
_ARTIFACT = re.compile(r"torch_aot_compile/([0-9a-f]+)/(rank_\d+_\d+)/model")
_MARKER = re.compile(r"([0-9a-f]{64})\.json")


@dataclasses.dataclass(frozen=True)
class Install:
    """One installation below a cache root: its key, its AOT keys, and when it was complete (nanoseconds)."""

    key: str
    aot_keys: tuple[str, ...]
    files: tuple[tuple[str, int], ...]
    moment: int


@dataclasses.dataclass
class Evidence:
    """What was found: artifacts (AOT key and rank) that the server loaded or looked up, wrote anew, or refused, with why."""

    loaded: set[str] = dataclasses.field(default_factory=set)
    written: set[str] = dataclasses.field(default_factory=set)
    reasons: list[str] = dataclasses.field(default_factory=list)


def verify(settings: Settings, server_log: str | None) -> tuple[Result, int]:
    """Return what the server made of the installation, and the exit code: 0 used, 10 ignored or used in part.

    Raises EntryNotFound where nothing was installed, TemporaryError where the server has not come that far.
    """
    progress = Progress("verify")
    root = resolve.cache_root(settings, os.environ)
    progress.update(cache_root=str(root))
    installs = sorted(installed(root), key=lambda one: one.moment)
    if not installs:
        raise EntryNotFound(f"nothing was installed below {root}", hint="look at the result of `warmstart run`")
    log = _log(server_log) if server_log else None
    install = _meant(installs, log)
    evidence = _from_log(log, install) if log else _from_folder(root, install, installs)
    progress.update(request_key=install.key, aot_keys=install.aot_keys)
    missing = sorted(set(install.aot_keys) - {one.partition("/")[0] for one in evidence.loaded})
    if evidence.loaded and not evidence.written and not evidence.reasons and not missing:
        return progress.end("used", f"{len(install.aot_keys)} artifacts, nothing compiled"), 0
    reasons = list(evidence.reasons)
    if evidence.written:
        reasons.append(f"the server compiled {', '.join(one[:12] for one in sorted(evidence.written)[:4])}")
    if missing:
        reasons.append(f"not loaded: {', '.join(one[:12] for one in missing[:4])}")
    differences = why(root, install, log)
    progress.warn(*(f"{one.factor}: {one.cause}; {one.change}" for one in differences[:8]))
    outcome = "partly" if evidence.loaded else "ignored"
    return progress.end(outcome, "; ".join(reasons)), EXIT_NOT_USED


def installed(root: Path) -> Iterator[Install]:
    """Yield the installations below a cache root."""
    from warmstart.archive.marker import parse_marker

    try:
        markers = [entry for entry in os.scandir(root / ".warmstart") if _MARKER.fullmatch(entry.name)]
    except OSError:
        return
    for entry in markers:
        try:
            marker = parse_marker(Path(entry.path).read_bytes())
            yield Install(marker.key, marker.aot_keys, tuple(marker.files), entry.stat().st_mtime_ns)
        except (OSError, ValueError):
            continue


def why(root: Path, install: Install, log: ServerLog | None) -> list[Difference]:
    """Return the factors in which the server differs from what was installed, as far as it tells them."""
    from warmstart.identity.differences import explain
    from warmstart.settings import Settings
    from warmstart.workflow.explaining import FACTORS_FILE, folder_side, side

    path = root / entries.MANIFEST_FILE.format(key=install.key)
    try:
        ours = side(Settings(), str(path)).factors
        if log is not None and (document := log.document()):
            return explain(ours, document)
        newer = any(one.stat().st_mtime_ns > install.moment for one in root.rglob(FACTORS_FILE))
        return explain(ours, folder_side(root).factors) if newer else []
    except (WarmstartError, OSError):
        return []


def _log(name: str) -> ServerLog:
    try:
        if name == "-":
            log = read_log(sys.stdin)
        else:
            with Path(name).open(encoding="utf-8", errors="replace") as file:
                log = read_log(file)
    except OSError as error:
        raise UsageError(f"cannot read the server's log {name}: {error.strerror or error}") from error
    if not log.started:
        raise TemporaryError(
            f"the log {name} says nothing of vLLM's compilation yet", hint="try again when the server is ready"
        )
    return log


def _meant(installs: list[Install], log: ServerLog | None) -> Install:
    """Return the installation whose artifacts the log speaks of, else the last one."""
    spoken = (
        {match[1] for path in (*log.loaded, *log.refused, *log.saved) if (match := _ARTIFACT.search(path))} if log else set()
    )
    return next((one for one in reversed(installs) if spoken & set(one.aot_keys)), installs[-1])


def _from_log(log: ServerLog, install: Install) -> Evidence:
    evidence = Evidence()
    for path in log.loaded:
        match = _ARTIFACT.search(path)
        if match and match[1] in install.aot_keys:
            evidence.loaded.add(f"{match[1]}/{match[2]}")
    for path in log.saved:
        match = _ARTIFACT.search(path)
        evidence.written.add(f"{match[1]}/{match[2]}" if match else shorten(path, 60))
    evidence.reasons += [
        f"vLLM refused {path.rpartition('/torch_aot_compile/')[2]}: {reason}" for path, reason in log.refused.items()
    ]
    if log.disabled:
        evidence.reasons.append("vLLM's compile cache is disabled")
    if log.graphs_compiled:
        evidence.reasons.append(f"the server compiled {log.graphs_compiled} graphs")
    if not (evidence.loaded or evidence.written or evidence.reasons):
        raise TemporaryError("the log says nothing of vLLM's compilation yet", hint="try again when the server is ready")
    return evidence


def _from_folder(root: Path, install: Install, installs: list[Install]) -> Evidence:
    evidence = Evidence()
    known = {key for one in installs for key in one.aot_keys}
    sizes = dict(install.files)
    for path in (root / _AOT).glob("*/rank_*/model"):
        key, rank = path.parent.parent.name, path.parent.name
        info = path.stat()
        name = f"{_AOT}/{key}/{rank}/model"
        anew = info.st_mtime_ns > install.moment or (name in sizes and sizes[name] != info.st_size)
        if anew and (key in install.aot_keys or key not in known):
            evidence.written.add(f"{key}/{rank}")
    for key in install.aot_keys:
        folder = root / _AOT / key
        if any(_touched(place, install.moment) for place in (folder, folder / "inductor_cache")):
            evidence.loaded |= {f"{key}/{path.parent.name}" for path in folder.glob("rank_*/model")} - evidence.written
    if not evidence.loaded and not evidence.written:
        raise TemporaryError(
            f"no sign yet below {root} that the server looked at the cache",
            hint="try again when it is ready, or give --server-log",
        )
    return evidence


def _touched(path: Path, moment: int) -> bool:
    try:
        return path.stat().st_mtime_ns > moment
    except OSError:
        return False
