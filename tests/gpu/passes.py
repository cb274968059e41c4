"""The passes that the proofs begin with: made where the tests run, their GPU hidden, or before, on a machine that has none.

    python -m tests.gpu.passes FOLDER [CASE ...] --gpu h200

makes those of the cases named, or of all, one after the other. With GPU_TESTS_PASSES=FOLDER the tests take what lies there, at
the same path (a model's path is in vLLM's key), and make what does not.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
from pathlib import Path
from typing import Any

from tests.gpu.cases import CASES, Case
from tests.gpu.programs import HIDDEN, Gpu, ProgramError, warmstart

from warmstart.compiler import CompileRequest, run_pass
from warmstart.errors import WarmstartError

PASSES = "GPU_TESTS_PASSES"


@dataclasses.dataclass(frozen=True)
class Entry:
    """A published entry: `spec` is the pod's, `compiled` what `precompile` told. `folder` holds the model."""

    folder: Path
    spec: Path
    store: Path
    compiled: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Kept:
    """A pass whose whole cache root is kept."""

    root: Path
    aot_keys: list[str]


def entry(case: Case, folder: Path, gpu: Gpu) -> Entry:
    """Return a case's entry in the store of `folder`, after making it where it is not there; the model is written in any case.

    Raises:
        ProgramError: `precompile` failed.

    """
    place, store = folder / case.name, folder / "store"
    place.mkdir(parents=True, exist_ok=True)
    server, spec, result = case.server(place), place / "pod.json", place / "entry.json"
    spec.write_text(json.dumps(server.pod()))
    if not result.exists():
        words = ("precompile", "-f", str(spec), "--store", str(store), *gpu.options)
        code, (compiled,) = warmstart(*words, env=server.env, log=place / "precompile.log", hidden=True)
        must(code == 0, compiled)
        result.write_text(json.dumps(compiled))
    return Entry(place, spec, store, json.loads(result.read_text()))


def kept(case: Case, folder: Path, gpu: Gpu) -> Kept:
    """Return a second pass of a case, for its graphs, in the same way.

    Raises:
        WarmstartError: it failed.

    """
    place = folder / case.name
    server, root, result = case.server(place), place / "pass", place / "pass.json"
    if not result.exists():
        request = CompileRequest(
            model=server.model,
            args=server.args,
            env={**os.environ, **server.env, **HIDDEN},
            gpu=gpu.profile(),
            cache_root=root,
            gpu_count=case.gpus,
            kernels=False,
        )
        result.write_text(json.dumps(run_pass(request).aot_keys))
    return Kept(root, json.loads(result.read_text()))


def made_in(fallback: Path) -> Path:
    """Return the folder of passes that GPU_TESTS_PASSES names, or `fallback`."""
    return Path(os.environ.get(PASSES) or fallback)


def must(good: bool, document: object) -> None:
    """Raise ProgramError with what a command answered, where that was not good."""
    if not good:
        raise ProgramError(json.dumps(document))


def main() -> int:
    """Make passes; print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("cases", nargs="*", default=[case.name for case in CASES], metavar="CASE")
    parser.add_argument("--gpu", required=True, help="GPU type, as warmstart is told it")
    args = parser.parse_args()
    failed, gpu = 0, Gpu(args.gpu, ("--gpu", args.gpu))
    for case in CASES:
        if case.name not in args.cases:
            continue
        try:
            print(case.name, *entry(case, args.folder.absolute(), gpu).compiled["aot_keys"], flush=True)
            kept(case, args.folder.absolute(), gpu)
        except (ProgramError, WarmstartError) as error:
            failed += 1
            print(case.name, "failed:", error, flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
