"""A manifest is refused, with the reason, unless every part of it is right."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.archive.blobs import KEY, layer_of, manifest_of, tar

from warmstart.archive import Bounds, parse_manifest
from warmstart.errors import EntryInvalid

GOOD = manifest_of(layer_of(tar(("a", b"x")), files=1)[0], layer_of(tar(("b", b"y")), files=1, name="rank-0-0")[0])


def changed(**fields: Any) -> bytes:
    return msgspec.json.encode({**msgspec.json.decode(GOOD.encode()), **fields})


def with_layer(**fields: Any) -> bytes:
    document = msgspec.json.decode(GOOD.encode())
    document["layers"][0].update(fields)
    return msgspec.json.encode(document)


def test_a_manifest_survives_its_own_encoding() -> None:
    assert parse_manifest(GOOD.encode(), key=KEY) == GOOD
    assert parse_manifest(GOOD.encode()).encode() == GOOD.encode()


WRONG = {
    "nothing": (b"", "not readable"),
    "no json": (b"{", "not readable"),
    "not an object": (b"[]", "not readable"),
    "not utf-8": (b'{"format": 1, "key": "\xff"}', "not valid|not readable"),
    "nested beyond reason": (b'{"format":1,"factors":' + b'{"a":' * 100_000, "not readable|not valid"),
    "newer": (changed(format=2), "format 2, this program reads up to 1"),
    "newer with other fields": (b'{"format": 9, "shape": "new"}', "format 9"),
    "older than the first": (changed(format=0), "format 0, which does not exist"),
    "format of another type": (changed(format="1"), "not readable"),
    "an unknown field": (changed(surprise=1), "unknown field"),
    "a missing field": (b'{"format": 1}', "missing required field"),
    "a wrong type": (changed(files="2"), "Expected `int`"),
    "a key that is a path": (changed(key="../../etc/passwd"), "64 hex digits"),
    "a key of capitals": (changed(key=KEY.upper()), "64 hex digits"),
    "no layers": (changed(layers=[], files=0), "0 layers"),
    "a layer twice": (changed(layers=[GOOD.layers[0].items()] * 2), "names a layer twice"),
    "a layer name that is a path": (with_layer(name="../x"), "names a layer"),
    "a layer name with a line feed": (with_layer(name="shared\n"), "names a layer"),
    "an unknown digest": (with_layer(digest="md5:" + "0" * 32), "not sha256"),
    "a digest that is a path": (with_layer(digest="sha256:../../../x"), "not sha256"),
    "a digest with a line feed": (with_layer(digest=GOOD.layers[0].digest + "\n"), "not sha256"),
    "a negative size": (with_layer(size=-1), "size is -1"),
    "a huge size": (with_layer(raw_size=1 << 50), "raw_size is"),
    "a size beyond 64 bits": (with_layer(size=1 << 70), "size is"),
    "too many files": (with_layer(files=10**9), "files is"),
    "files that do not add up": (changed(files=7), "counts 7 files"),
    "more raw bytes than the layers": (changed(raw_bytes=1 << 30), "raw bytes are more"),
}


@pytest.mark.parametrize(("data", "reason"), WRONG.values(), ids=WRONG.keys())
def test_what_is_wrong_is_refused_and_said(data: bytes, reason: str) -> None:
    with pytest.raises(EntryInvalid, match=reason) as caught:
        parse_manifest(data)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


def test_another_key_is_refused_where_one_is_expected() -> None:
    with pytest.raises(EntryInvalid, match="not of"):
        parse_manifest(GOOD.encode(), key="00" * 32)


def test_each_bound_holds() -> None:
    data = GOOD.encode()
    for bounds, reason in (
        (Bounds(manifest_bytes=len(data) - 1), "bytes, more than"),
        (Bounds(layers=1), "2 layers"),
        (Bounds(layer_bytes=10), "size is"),
        (Bounds(raw_bytes=10), "raw_size is"),
        (Bounds(files=1), "files is 2"),
    ):
        with pytest.raises(EntryInvalid, match=reason):
            parse_manifest(data, bounds=bounds)


@given(st.binary(max_size=300))
def test_any_bytes_are_refused_or_parsed_never_a_crash(data: bytes) -> None:
    with pytest.raises(EntryInvalid):
        parse_manifest(data)


@given(st.integers(0, len(GOOD.encode()) - 1), st.integers(0, 7))
def test_any_flipped_bit_is_refused_or_still_a_manifest(position: int, bit: int) -> None:
    data = bytearray(GOOD.encode())
    data[position] ^= 1 << bit
    try:
        parsed = parse_manifest(bytes(data))
    except EntryInvalid:
        return
    assert parsed != GOOD
