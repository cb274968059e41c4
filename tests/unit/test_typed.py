"""JSON from outside becomes a value of exactly the declared types, or an error that says where it is wrong."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from warmstart.typed import dumps, loads, read
from warmstart.value import Value, field


class Inner(Value):
    """A nested object."""

    n: int


class Outer(Value):
    """One field of every kind that the documents of this program have."""

    text: str
    flag: bool
    seconds: float
    inner: Inner
    many: tuple[Inner, ...]
    words: tuple[str, ...]
    rows: list[tuple[str, int]]
    counts: dict[str, int] = field(default_factory=dict)
    any: dict[str, Any] = field(default_factory=dict)
    missing: int = 3


GOOD: dict[str, Any] = {
    "text": "ü", "flag": True, "seconds": 1, "inner": {"n": 1}, "many": [{"n": 2}], "words": ["a"], "rows": [["a", 1]],
    "counts": {"b": 2}, "any": {"x": [None, 1.5]},
}  # fmt: skip


def test_a_document_becomes_a_value_and_lists_become_tuples() -> None:
    made = read(Outer, loads(dumps(GOOD)), strict=True)
    assert made == Outer(
        text="ü", flag=True, seconds=1, inner=Inner(1), many=(Inner(2),), words=("a",), rows=[("a", 1)],
        counts={"b": 2}, any={"x": [None, 1.5]},
    )  # fmt: skip
    assert made.missing == 3


WRONG: dict[str, tuple[Any, str]] = {
    "no object": ([], r"Expected `object`, got `array` - at `\$`"),
    "a missing field": ({}, "missing required field `text`"),
    "text": ({**GOOD, "text": 1}, r"Expected `str`, got `int` - at `\$.text`"),
    "a number that is a boolean": ({**GOOD, "inner": {"n": True}}, r"Expected `int`, got `bool` - at `\$.inner.n`"),
    "a number with a point": ({**GOOD, "inner": {"n": 1.0}}, "Expected `int`, got `float`"),
    "a boolean that is a number": ({**GOOD, "flag": 1}, "Expected `bool`"),
    "null": ({**GOOD, "seconds": None}, "Expected `float`, got `null`"),
    "a list": ({**GOOD, "many": {}}, "Expected `array`"),
    "an item of a list": ({**GOOD, "many": [{"n": "x"}]}, r"at `\$.many\[…\].n`"),
    "a row": ({**GOOD, "rows": [["a", 1, 2]]}, "Expected `array`"),
    "a mapping's value": ({**GOOD, "counts": {"a": "b"}}, r"at `\$.counts.a`"),
    "an unknown field": ({**GOOD, "surprise": 1}, "unknown field `surprise`"),
    "an unknown field inside": ({**GOOD, "inner": {"n": 1, "surprise": 1}}, "unknown field `surprise`"),
}


@pytest.mark.parametrize(("document", "reason"), WRONG.values(), ids=WRONG.keys())
def test_what_is_not_of_the_declared_type_is_refused_with_its_place(document: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read(Outer, document, strict=True)


def test_unknown_fields_are_passed_over_where_a_newer_program_may_have_written_them() -> None:
    assert read(Outer, {**GOOD, "surprise": 1, "inner": {"n": 1, "more": 2}}).inner == Inner(1)


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b"\xef\xbb\xbf{}", b"NaN", b"[Infinity]", b'"\\ud800"', b"[" * 100_000])
def test_what_is_no_json_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        loads(data)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


@given(JSON)
def test_documents_are_spelled_as_msgspec_spells_them(document: Any) -> None:
    """Entries that were published before hold their digests over that spelling."""
    assert dumps(document, sort=True) == msgspec.json.encode(document, order="sorted")
    assert loads(dumps(document)) == document
