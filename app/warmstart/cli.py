"""The command line: sub-commands, the one try/except, the one place that maps errors to exit codes."""

from __future__ import annotations


def main(argv: list[str] | None = None) -> int:
    """Run one sub-command and return its exit code."""
    raise NotImplementedError(argv)
