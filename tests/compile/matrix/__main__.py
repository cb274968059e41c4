"""Run cases of the matrix: `python -m tests.compile.matrix CASE... [--jobs N] [--json FILE]`; a case may be a glob.

Prints a line for each case as it ends, and for a failing one its error and the last lines of its log.
"""

from __future__ import annotations

import argparse
import fnmatch
import sys
import tempfile
from pathlib import Path

from tests.compile.matrix import results
from tests.compile.matrix.case import Case
from tests.compile.matrix.judge import Result
from tests.compile.matrix.registry import cases
from tests.compile.matrix.runner import Runner


def main() -> int:
    """Run the named cases; 1 where one failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.compile.matrix", description=__doc__)
    parser.add_argument("case", nargs="*", help="names or globs; none: all cases")
    parser.add_argument("--jobs", type=int, default=1, help="processes at once")
    parser.add_argument("--json", type=Path, help="write the results into this file, beside those of other cases in it")
    parser.add_argument("--keep", type=Path, help="keep caches and logs in this folder")
    parser.add_argument("--lines", type=int, default=12, help="lines of a failing case's log")
    parser.add_argument("--list", action="store_true", help="list the cases")
    options = parser.parse_args()
    known = cases()
    names = [name for glob in options.case or ["*"] for name in known if fnmatch.fnmatch(name, glob)]
    wanted = [known[name] for name in dict.fromkeys(names)]
    if options.list or not wanted:
        print("\n".join(case.name for case in wanted) or "no such case")
        return int(not wanted)
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)

    def tell(case: Case, result: Result, log: str) -> None:
        counts = f"{result.ranks} ranks {result.modules} modules {result.graphs} graphs {result.bytes / 1e6:.1f} MB"
        times = f"{result.seconds:.0f} s {result.cpu_seconds:.0f} CPU-s"
        found = f"{dict(result.passes)} {' '.join(result.chosen)}"
        print(f"{result.status:7} {case.name:28} {case.gpu} {counts} {times} {found}", flush=True)
        if result.status == "fail":
            print(f"        {result.why}", flush=True)
            for line in log.splitlines()[-options.lines :]:
                print(f"        | {line}", flush=True)
        if options.json:
            results.write(options.json, [result], known)

    with tempfile.TemporaryDirectory(prefix="warmstart-matrix-") as work:
        done = Runner(Path(work), tell, workers=options.jobs, keep=options.keep).run(wanted)
    failed = [result.name for result in done if result.status == "fail"]
    print(f"{len(done)} cases, {len(failed)} failed{': ' if failed else ''}{' '.join(failed)}")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
