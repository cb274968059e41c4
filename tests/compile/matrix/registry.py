"""All cases: each module of cases/ has a tuple CASES."""

from __future__ import annotations

import importlib
from pathlib import Path

from tests.compile.matrix.case import Case


def cases() -> dict[str, Case]:
    """Return the cases by name, in the order of their files and within them."""
    found: dict[str, Case] = {}
    for path in sorted((Path(__file__).parent / "cases").glob("[a-z]*.py")):
        for case in importlib.import_module(f"tests.compile.matrix.cases.{path.stem}").CASES:
            assert case.name not in found, f"two cases are named {case.name}"
            found[case.name] = case
    return found
