"""Which seams and entry points fit the vLLM of this environment: `python -m warmstart.compiler.seams.check`.

Prints a table and ends with 1 where something does not fit. It needs no supported version: a newer one is judged by the names
of the newest line, so that a nightly build tells what it breaks before a release does. Nothing is compiled.
"""

from __future__ import annotations

import argparse
import ctypes
import dataclasses
import importlib.metadata
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from warmstart.compiler import lines, stub
from warmstart.compiler.entrypoints import entry_points, problem
from warmstart.compiler.seams.base import ABSENT, Bench, seams_of
from warmstart.errors import SeamError, WarmstartError, shorten
from warmstart.gpus import load_catalog

if TYPE_CHECKING:
    from collections.abc import Callable

_GPU = "h200"


@dataclasses.dataclass(frozen=True)
class Finding:
    """One line of the table: a seam or an entry point, by name, and what is wrong with it (nothing: empty)."""

    kind: Literal["seam", "entry point"]
    name: str
    wrong: str = ""
    note: str = ""


class Probe(Bench):
    """A bench on which a seam goes on past what it does not find, so that all of it is told."""

    def __init__(self, line: lines.Line, versions: str) -> None:
        super().__init__(gpu=load_catalog().get(_GPU), visible=1, versions=versions, absent=line.absent)
        self.missing: list[str] = []
        self.left_out: list[str] = []

    def replace(self, owner: Any, name: str, value: Any) -> Any:
        """Replace, or note what is not there."""
        where = owner if isinstance(owner, str) else getattr(owner, "__qualname__", getattr(owner, "__name__", owner))
        try:
            before = super().replace(owner, name, value)
        except SeamError as error:
            self.missing.append(str(error.message).partition(": ")[2])
            return ABSENT
        if before is ABSENT:
            self.left_out.append(f"{where}.{name}")
        return before


def check(line: lines.Line, versions: str, library: Path) -> list[Finding]:
    """Install every seam in this process, then look for every entry point. The process is of no other use after it."""
    probe = Probe(line, versions)
    # As in a pass: see compiler/child.py.
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
    found = [_seam(probe, seam.name, seam.install) for seam in seams_of("driver")]
    import torch  # noqa: F401 - the seams of the next stage take it as imported

    found += [_seam(probe, seam.name, seam.install) for seam in seams_of("torch")]
    found.append(Finding("entry point", "vllm", _import_error("vllm.v1.worker.gpu_worker")))
    found += [_seam(probe, seam.name, seam.install) for seam in seams_of("vllm")]
    found += [_seam(probe, name, install) for name, install in _later().items()]
    for point in entry_points(line):
        given = f"({', '.join(point.gives)})" if point.gives else ""
        if point.newer and not line.has(point.newer):
            found.append(Finding("entry point", point.place + given, note="not in this line"))
        else:
            found.append(Finding("entry point", point.place + given, problem(point)))
    return found


def _later() -> dict[str, Callable[[Bench], None]]:
    """Return what a pass replaces after its seams are in place, by the names under which that fails."""
    from warmstart.compiler.config import read_hub_from_cache
    from warmstart.compiler.headers import HeaderReads
    from warmstart.compiler.modules import Watch

    def watch(bench: Bench) -> None:
        Watch(bench).install()

    return {"headers.watched": HeaderReads().install, "hub.offline": read_hub_from_cache, "modules.call": watch}


def _seam(probe: Probe, name: str, install: Callable[[Bench], None]) -> Finding:
    probe.missing, probe.left_out = [], []
    try:
        with probe.named(name):
            install(probe)
    except SeamError as error:
        probe.missing.append(str(error.message).partition(": ")[2])
    except Exception as error:  # noqa: BLE001 - whatever a seam meets in a version that it was not made for
        probe.missing.append(f"{type(error).__name__}: {shorten(error, 200)}")
    note = f"not in this line: {', '.join(probe.left_out)}" if probe.left_out else ""
    return Finding("seam", name, "; ".join(dict.fromkeys(probe.missing)), note)


def _import_error(module: str) -> str:
    try:
        importlib.import_module(module)
    except Exception as error:  # noqa: BLE001 - any of vLLM's own
        return f"{type(error).__name__}: {shorten(error, 200)}"
    return ""


def table(found: list[Finding]) -> str:
    """Return the findings for people: what does not fit, what a line has not got, and how many fit."""
    rows = [f"{'BROKEN' if one.wrong else 'absent':<7} {one.kind:<12} {one.name}: {one.wrong or one.note}" for one in found]
    shown = [row for row, one in zip(rows, found, strict=True) if one.wrong or one.note]
    counts = [
        f"{sum(not one.wrong for one in found if one.kind == kind)} of {sum(one.kind == kind for one in found)} {kind}s fit"
        for kind in ("seam", "entry point")
    ]
    return "\n".join([*shown, ", ".join(counts)])


def main(argv: list[str] | None = None) -> int:
    """Check this environment."""
    parser = argparse.ArgumentParser(prog="python -m warmstart.compiler.seams.check", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print every finding as JSON")
    parser.add_argument("--stub", type=Path, help="a libcuda stand-in that was built before")
    options = parser.parse_args(argv)
    try:
        versions = {name: importlib.metadata.version(name) for name in ("vllm", "torch")}
        line, supported = lines.nearest(versions["vllm"], versions["torch"])
        with tempfile.TemporaryDirectory() as folder:
            library = stub.ensure(Path(folder), options.stub)
            found = check(line, f"vLLM {versions['vllm']}, torch {versions['torch']}", library)
    except (WarmstartError, importlib.metadata.PackageNotFoundError) as error:
        print(f"warmstart: {error}", file=sys.stderr)
        return 2
    if options.json:
        print(json.dumps({**versions, "line": line.vllm, "findings": [dataclasses.asdict(one) for one in found]}))
    else:
        judged = f"line {line.vllm}" if supported else f"no supported line; judged by the names of {line.vllm}"
        print(f"vLLM {versions['vllm']}, torch {versions['torch']}: {judged}")
        print(table(found))
    return int(any(one.wrong for one in found))


if __name__ == "__main__":
    sys.stdout.flush()
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # destructors would call into a CUDA that is not there
