"""The list of places where the pass calls into vLLM is whole, and says what is wrong with a place."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from warmstart import compiler
from warmstart.compiler.entrypoints import EntryPoint, entry_points, problem
from warmstart.compiler.lines import LINES, nearest

ROOM = Path(compiler.__file__).parent
# Names that only give access to a place that is listed by itself.
ACCESS = {("vllm", "envs"), ("vllm.compilation", "caching")}


def imported() -> set[tuple[str, str]]:
    """Return what the modules of this room import from vLLM by name, seams aside: they fail by their own names."""
    found = set()
    for path in ROOM.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "vllm":
                found |= {(str(node.module), alias.name) for alias in node.names}
    return found


def test_every_import_from_vllm_is_an_entry_point() -> None:
    listed = {tuple(point.place.partition(":")[::2]) for line in LINES for point in entry_points(line)}
    tops = {(module, path.split(".")[0]) for module, path in listed}
    assert imported() - tops - ACCESS == set()
    assert len(imported()) > 10


def test_each_line_names_only_absent_places_that_the_list_or_a_seam_knows() -> None:
    """A name in `absent` that nothing asks for would hide a mistake."""
    sources = "".join(path.read_text() for path in ROOM.rglob("*.py") if path.name != "lines.py")
    for line in LINES:
        for name in line.absent:
            module, _, last = name.rpartition(".")
            constants = [point.newer for point in entry_points(line)]
            assert name in constants or f'"{name}"' in sources or last in sources, name
            assert module


@pytest.mark.parametrize(
    ("point", "expected"),
    [
        (EntryPoint("json:JSONDecoder.decode"), ""),
        (EntryPoint("json:dumps", ("indent", "sort_keys")), ""),
        (EntryPoint("json:JSONDecoder", ("strict",)), ""),
        (EntryPoint("json:loads", ("anything",)), ""),
        (EntryPoint("json:JSONDecoder", ("tolerant",)), "takes no tolerant"),
        (EntryPoint("json:JSONDecoder.decode_fast"), "JSONDecoder has no decode_fast"),
        (EntryPoint("json:no_such"), "json has no no_such"),
        (EntryPoint("no_such_module.at_all:name"), "cannot import no_such_module.at_all"),
    ],
)
def test_what_is_wrong_with_a_place_is_said(point: EntryPoint, expected: str) -> None:
    assert problem(point).startswith(expected) if expected else problem(point) == ""


@pytest.mark.parametrize(
    ("vllm", "torch", "line", "fits"),
    [
        ("0.33.0", "2.14.0", "0.33", True),
        ("0.33.1+cu129", "2.14.0+cu129", "0.33", True),
        ("0.32.0", "2.13.0", "0.32", True),
        ("0.26.0", "2.11.0+cu130", "0.26", True),
        ("0.26.0", "2.14.0", "0.26", False),
        ("0.34.0rc1", "2.15.0", "0.33", False),
        ("0.31.0", "2.13.0", "0.26", False),
        ("0.9.2", "2.7.0", "0.26", False),
        ("dev", "2.14.0", "0.26", False),
    ],
)
def test_a_version_is_looked_at_by_the_names_of_the_line_at_or_before_it(vllm: str, torch: str, line: str, fits: bool) -> None:
    found, supported = nearest(vllm, torch)
    assert (found.vllm, supported) == (line, fits)
