"""Values behave as frozen dataclasses do, and are some to whoever asks; they do not import `dataclasses` for it."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import ClassVar

import pytest

from warmstart.value import Value, field


class Point(Value):
    """A value with every kind of field."""

    kind: ClassVar[str] = "point"
    x: int
    y: int = 0
    note: str = field(default="", compare=False)
    secret: str = field(default="", repr=False, metadata={"why": "a test"})
    tags: Mapping[str, str] = field(default_factory=dict, compare=False)


class Named(Point, kw_only=True):
    """One that adds a field to another, and takes none by position."""

    name: str = "n"


@dataclasses.dataclass(frozen=True)
class Twin:
    """What the standard library makes of the same fields."""

    x: int
    y: int = 0
    note: str = dataclasses.field(default="", compare=False)
    secret: str = dataclasses.field(default="", repr=False)
    tags: Mapping[str, str] = dataclasses.field(default_factory=dict, compare=False)


def test_a_value_takes_its_fields_in_order_or_by_name_and_knows_its_defaults() -> None:
    assert Point(1, 2) == Point(y=2, x=1) != Point(1)
    assert Point(1).tags == {}
    assert Point(1).tags is not Point(1).tags
    assert (Point.y, Point(7).y) == (0, 0)
    assert list(Named.__fields__) == ["x", "y", "note", "secret", "tags", "name"]


WRONG: dict[str, tuple[Callable[[], object], str]] = {
    "a field is missing": (lambda: Point(), "lacks its field x"),  # type: ignore[call-arg]
    "a field is given twice": (lambda: Point(1, x=2), "twice"),  # type: ignore[misc]
    "a field that is none": (lambda: Point(1, z=2), "no field z"),  # type: ignore[call-arg]
    "too many": (lambda: Point(1, 2, "", "", {}, 6), "too many"),  # type: ignore[call-arg]
    "by position where names are asked for": (lambda: Named(1), "too many"),  # type: ignore[misc]
    "a change of a field that is none": (lambda: Point(1).replace(z=1), "no field z"),
}


@pytest.mark.parametrize(("make", "reason"), WRONG.values(), ids=WRONG.keys())
def test_a_value_that_cannot_be_is_refused(make: Callable[[], object], reason: str) -> None:
    with pytest.raises(TypeError, match=reason):
        make()


def test_a_value_is_frozen() -> None:
    point = Point(1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        point.x = 2  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        del point.x
    assert point.replace(x=3) == Point(3)
    assert point == Point(1)


def test_equality_hash_and_text_are_those_of_a_dataclass() -> None:
    one, other = Point(1, note="a", secret="s"), Point(1, note="b", secret="s", tags={"a": "b"})
    assert one == other
    assert hash(one) == hash(other)
    assert one != Point(1, secret="t")
    assert Point(1) != Named(x=1)
    assert repr(other) == repr(Twin(1, note="b", secret="s", tags={"a": "b"})).replace("Twin", "Point")


def test_the_standard_library_takes_a_value_for_a_dataclass() -> None:
    point = Point(1, 2, tags={"a": "b"})
    assert dataclasses.is_dataclass(point)
    assert dataclasses.replace(point, y=3) == Point(1, 3)
    assert dataclasses.asdict(point) == dataclasses.asdict(Twin(1, 2, tags={"a": "b"})) == point.items()
    fields = {found.name: found for found in dataclasses.fields(Point)}
    assert list(fields) == [found.name for found in dataclasses.fields(Twin)]
    assert fields["secret"].metadata == {"why": "a test"}
    assert fields["x"].default is dataclasses.MISSING


def test_a_value_can_be_copied_and_sent() -> None:
    point = Point(1, tags={"a": "b"})
    for made in (copy.copy(point), copy.deepcopy(point), pickle.loads(pickle.dumps(point))):  # noqa: S301 - our own bytes
        assert made == point
        assert made.tags == point.tags


def test_making_values_imports_no_dataclasses() -> None:
    code = (
        "import sys\nfrom warmstart.value import Value\nclass A(Value):\n    x: 'int' = 1\n"
        "A().replace(x=2) == A(2)\nassert not {'dataclasses', 'inspect'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-S", "-c", code], env={"PYTHONPATH": "app"}, check=True)
