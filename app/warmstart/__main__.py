"""The program: `warmstart`, `python -m warmstart`."""

from __future__ import annotations

import contextlib
import gc
import os
import sys


def main() -> int:
    """Run one sub-command and return its exit code."""
    if sys.argv[1:2] == ["run"]:
        # An init container's time is the pod's: what its call needs in any case is begun before anything else is imported,
        # and a process that ends in a moment need not look for garbage.
        gc.disable()
        from warmstart.workflow import ahead

        ahead.begin()
    from warmstart.cli import main as run

    code = run()
    if sys.argv[1:2] == ["run"]:
        # Everything is told and closed. Taking the interpreter apart would only make the server wait.
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
        os._exit(code)
    return code


if __name__ == "__main__":
    raise SystemExit(main())
