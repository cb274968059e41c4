"""`warmstart explain A B`: find what A and B name, and compare."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warmstart.errors import UsageError, shorten
from warmstart.identity import Identity
from warmstart.identity.differences import Difference, explain
from warmstart.identity.serverlog import is_factors, read_factors, read_log
from warmstart.workflow import entries
from warmstart.workflow.transfer import full_key

if TYPE_CHECKING:
    from warmstart.settings import Settings

FACTORS_FILE = "cache_key_factors.json"
_MOST_BYTES = 256 << 20
_KINDS = "an entry's key, a document with factors, a cache folder, a cache_key_factors.json, a server's log or a line of it"


@dataclasses.dataclass(frozen=True)
class Side:
    """One side: what it is, for people, and its factors."""

    label: str
    factors: Identity | Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Explanation:
    """What differs between two sides."""

    a: Side
    b: Side
    differences: tuple[Difference, ...]

    def document(self) -> dict[str, Any]:
        """Return the explanation as a JSON object."""
        return {
            "a": self.a.label,
            "b": self.b.label,
            "equal": not self.differences,
            "differences": [dataclasses.asdict(difference) for difference in self.differences],
        }

    def text(self) -> str:
        """Return the explanation for people."""
        head = f"a: {self.a.label}\nb: {self.b.label}"
        if not self.differences:
            return f"{head}\n\nno factor differs, as far as the two can be compared"
        return "\n\n".join([head, *(difference.text() for difference in self.differences)])


def compare(settings: Settings, a: str, b: str) -> Explanation:
    """Explain why `a` and `b` have different keys. Raises UsageError where one of them cannot be read as any of the kinds."""
    left, right = side(settings, a), side(settings, b)
    return Explanation(left, right, tuple(explain(left.factors, right.factors)))


def side(settings: Settings, name: str) -> Side:
    """Return what `name` stands for."""
    if " " in name and (log := read_log(name.splitlines())).document():
        return Side("the log line given", log.document())
    path = Path(name).expanduser()
    try:
        if path.is_dir():
            return folder_side(path)
        if path.is_file():
            return _file_side(path)
    except OSError as error:
        raise UsageError(f"cannot read {name}: {error.strerror or error}") from error
    if "/" in name or "." in name:
        raise UsageError(f"there is no {shorten(name, 120)}", hint=f"give {_KINDS}")
    return _entry_side(settings, name)


def folder_side(folder: Path) -> Side:
    """Return what a cache folder says: the factors that a server wrote there, else those of what was installed last.

    An installed entry may hold the compile's own factors file, so only a newer one is the server's.
    """
    installed = _newest(folder.glob(entries.MANIFEST_FILE.format(key="*")))
    written = _newest(folder.rglob(FACTORS_FILE))
    if written and (installed is None or written.stat().st_mtime_ns > installed.stat().st_mtime_ns):
        return _file_side(written)
    if installed:
        return _file_side(installed)
    raise UsageError(f"{folder} holds no {FACTORS_FILE} and nothing that warmstart installed", hint=f"give {_KINDS}")


def _newest(paths: Iterable[Path]) -> Path | None:
    return max(paths, key=lambda path: path.stat().st_mtime_ns, default=None)


def _file_side(path: Path) -> Side:
    if path.stat().st_size > _MOST_BYTES:
        raise UsageError(f"{path} is larger than {_MOST_BYTES} bytes", hint="cut the log to the server's start")
    content = path.read_bytes()
    document: Any = None
    if content.lstrip()[:1] in {b"{", b"["}:
        try:
            document = json.loads(content)
        except (ValueError, RecursionError):
            document = None  # a log in JSON lines, say
    if is_factors(document):
        return Side(f"vLLM's factors in {path}", read_factors(content, str(path)))
    found = [one for one in (document if isinstance(document, list) else [document]) if isinstance(one, dict)]
    stated = [one for one in (_stated(one) for one in found) if one is not None]
    if len(stated) > 1:
        raise UsageError(f"{path} holds the factors of {len(stated)} servers", hint="keep one of them")
    if stated:
        return Side(f"the factors in {path}", Identity(stated[0]))
    log = read_log(content.decode("utf-8", errors="replace").splitlines())
    if not log.started:
        raise UsageError(f"{path} is none of what can be compared", hint=f"give {_KINDS}")
    return Side(f"the server's log {path}", log.document())


def _stated(document: Mapping[str, Any]) -> Mapping[str, Any] | None:
    factors = document.get("factors", document)
    return factors if isinstance(factors, dict) and "format" in factors and isinstance(factors.get("arguments"), dict) else None


def _entry_side(settings: Settings, key: str) -> Side:
    from warmstart.archive import parse_manifest

    store = entries.open_from(settings, [])
    full = full_key(store, key)
    manifest = parse_manifest(store.lookup(full).manifest, key=full)
    return Side(f"entry {full[:16]} of {store.url}", Identity(manifest.factors))
