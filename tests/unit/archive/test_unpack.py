"""Unpacking takes what `pack` makes and refuses everything else, before or while it writes, never after."""

from __future__ import annotations

import contextlib
import io
import tarfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.archive.blobs import layer_of, pieces, tar

from warmstart.archive import BOUNDS, Bounds, Layer
from warmstart.archive.unpack import unpack
from warmstart.archive.zstd import zstd
from warmstart.errors import EntryInvalid

GOOD = tar(("a/one", b"1" * 700), ("a/two", b""), ("three", b"3" * 512))


def run(folder: Path, layer: Layer, blob: bytes, bounds: Bounds = BOUNDS) -> tuple[tuple[str, int], ...]:
    return unpack(layer, pieces(blob), folder, bounds)


def refuse(folder: Path, raw: bytes, reason: str, *, files: int = 1, bounds: Bounds = BOUNDS, **stated: object) -> None:
    layer, blob = layer_of(raw, files=files, **stated)  # type: ignore[arg-type]
    with pytest.raises(EntryInvalid, match=reason) as caught:
        run(folder, layer, blob, bounds)
    assert "layer shared" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_regular_files_arrive_with_bytes_modes_and_times(tmp_path: Path) -> None:
    layer, blob = layer_of(GOOD, files=3)
    assert run(tmp_path, layer, blob) == (("a/one", 700), ("a/two", 0), ("three", 512))
    assert (tmp_path / "a/one").read_bytes() == b"1" * 700
    assert (tmp_path / "a/one").stat().st_mode & 0o777 == 0o664
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o775
    assert (tmp_path / "three").stat().st_mtime_ns == 1_700_000_000 * 10**9


def test_nanosecond_times_survive(tmp_path: Path) -> None:
    raw = tar(("f", b"x"), pax_headers={"mtime": "1790000000.123456789"})
    layer, blob = layer_of(raw, files=1)
    run(tmp_path, layer, blob)
    assert (tmp_path / "f").stat().st_mtime_ns == 1_790_000_000_123_456_789


PATHS = {
    "absolute": ("/etc/passwd", "is absolute"),
    "parent": ("../x", r"\.\."),
    "parent inside": ("a/../../x", r"\.\."),
    "current": ("./x", r"\.\."),
    "empty component": ("a//x", "empty"),
    "our own folder": (".warmstart/key.json", "lies in .warmstart"),
    "control character": ("a\x01b", "control"),
    "line feed": ("a\nb", "control"),
    "backslash": ("a\\b", "backslash"),
    "long component": ("x" * 256, "255"),
    "long path": ("/".join(["y" * 200] * 6), "1024"),
    "deep": ("/".join("d" * 40), "40 deep"),
    "another character set": ("caf\udce9", "hdrcharset"),
}


@pytest.mark.parametrize(("path", "reason"), PATHS.values(), ids=PATHS.keys())
def test_paths_that_could_lead_elsewhere_are_refused(tmp_path: Path, path: str, reason: str) -> None:
    refuse(tmp_path, tar((path, b"x")), reason)
    assert [found for found in tmp_path.rglob("*") if found.is_file()] == []


TYPES = {
    "symlink": {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd", "size": 0},
    "hard link": {"type": tarfile.LNKTYPE, "linkname": "a", "size": 0},
    "folder": {"type": tarfile.DIRTYPE, "size": 0},
    "fifo": {"type": tarfile.FIFOTYPE, "size": 0},
    "device": {"type": tarfile.CHRTYPE, "devmajor": 1, "devminor": 5, "size": 0},
    "block device": {"type": tarfile.BLKTYPE, "size": 0},
    "contiguous": {"type": tarfile.CONTTYPE},
    "sparse": {"type": tarfile.GNUTYPE_SPARSE},
    "unknown": {"type": b"?"},
}


@pytest.mark.parametrize("fields", TYPES.values(), ids=TYPES.keys())
def test_anything_but_a_regular_file_is_refused(tmp_path: Path, fields: dict[str, object]) -> None:
    refuse(tmp_path, tar(("a", b""), **fields), "only regular files|no ustar magic")
    assert list(tmp_path.rglob("*")) == []


NAMES_THAT_MEET = {
    "twice": (["a", "a"], "is there twice"),
    "differing in case": (["Kernel", "kernel"], "is there twice"),
    "below a file": (["a", "a/b"], "below a file"),
    "file and folder": (["a/b", "a"], "is a file and a folder"),
    "case of a folder": (["A/b", "a"], "is a file and a folder"),
}


@pytest.mark.parametrize(("paths", "reason"), NAMES_THAT_MEET.values(), ids=NAMES_THAT_MEET.keys())
def test_names_that_meet_are_refused(tmp_path: Path, paths: list[str], reason: str) -> None:
    refuse(tmp_path, tar(*((path, b"x") for path in paths)), reason, files=2)


def raw_pax(records: bytes) -> bytes:
    """Return a tar whose one file has a pax header with exactly those records."""
    info = tarfile.TarInfo("pax")
    info.type, info.size = tarfile.XHDTYPE, len(records)
    file = tarfile.TarInfo("f")
    file.size = 1
    padded = records + bytes(-len(records) % 512)
    return info.tobuf(tarfile.USTAR_FORMAT) + padded + file.tobuf(tarfile.USTAR_FORMAT) + b"x" + bytes(511) + bytes(1024)


PAX = {
    "an unknown record": (b"18 comment=hello!\n", "not allowed"),
    "a sparse record": (b"22 GNU.sparse.major=1\n", "not allowed"),
    "a link target": (b"17 linkpath=/etc\n", "not allowed"),
    "a record twice": (b"9 path=a\n9 path=b\n", "twice"),
    "no length": (b"path=a\n", "malformed"),
    "a length that lies": (b"99 path=a\n", "malformed"),
    "a length of zero": (b"0 path=a\n", "malformed"),
    "no line feed": (b"9 path=ab", "malformed"),
    "a name in bytes that are not UTF-8": (b"10 path=\xff\n", "UTF-8"),
    "a time that is none": (b"14 mtime=soon\n", "time"),
    "a negative time": (b"12 mtime=-5\n", "time"),
    "a size that is none": (b"13 size=1e10\n", "size"),
    "too large": (b"20010 path=" + b"a" * 19998 + b"\n", "16384"),
    "empty": (b"", "pax header has 0"),
}


@pytest.mark.parametrize(("records", "reason"), PAX.values(), ids=PAX.keys())
def test_pax_headers_hold_path_time_and_size_and_nothing_else(tmp_path: Path, records: bytes, reason: str) -> None:
    refuse(tmp_path, raw_pax(records), reason)


def patched(raw: bytes, position: int, data: bytes, *, checksum: bool = True) -> bytes:
    """Return the tar with bytes of its first header replaced, and the header's checksum put right."""
    header = bytearray(raw[:512])
    header[position : position + len(data)] = data
    if checksum:
        header[148:156] = b" " * 8
        header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header) + raw[512:]


HEADERS = {
    "a wrong checksum": (patched(tar(("a", b"x")), 0, b"b", checksum=False), "checksum"),
    "another magic": (patched(tar(("a", b"x")), 257, b"tarball"), "magic"),
    "a size in base 256": (patched(tar(("a", b"x")), 124, b"\x80" + b"\xff" * 11), "number"),
    "a size that is no number": (patched(tar(("a", b"x")), 124, b"9" * 11 + b"\0"), "number"),
    "a size beyond the end": (patched(tar(("a", b"x")), 124, b"%011o\0" % (1 << 30)), "ends inside"),
    "bytes in the padding": (tar(("a", b"x"))[:513] + b"!" + tar(("a", b"x"))[514:], "padding"),
    "the end missing": (tar(("a", b"x"))[:1024], "ends inside"),
    "cut in a file": (tar(("a", b"x" * 2000))[:1200], "ends inside"),
    "data after the end": (tar(("a", b"x")) + b"hidden" + bytes(506), "data follows"),
    "nothing": (b"", "ends inside"),
}


@pytest.mark.parametrize(("raw", "reason"), HEADERS.values(), ids=HEADERS.keys())
def test_a_tar_that_is_not_quite_one_is_refused(tmp_path: Path, raw: bytes, reason: str) -> None:
    refuse(tmp_path, raw, reason)


def test_what_the_layer_states_is_what_it_must_hold(tmp_path: Path) -> None:
    truth, _ = layer_of(GOOD, files=3)
    for number, (stated, reason) in enumerate(
        [
            ({"files": 2}, "more than the 2 files"),
            ({"files": 4}, "3 files, 4 stated"),
            ({"raw_size": truth.raw_size - 1}, "more than the"),
            ({"raw_size": truth.raw_size + 1}, "unpacks to"),
            ({"size": truth.size - 1}, "more than the"),
            ({"size": truth.size + 1}, "stated"),
            ({"digest": "sha256:" + "0" * 64}, "digest"),
        ]
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        refuse(folder, GOOD, reason, **{"files": 3, **stated})  # type: ignore[arg-type]


def test_a_bomb_is_stopped_at_the_size_it_states(tmp_path: Path) -> None:
    bomb = tar(("a", bytes(64 << 20)))
    refuse(tmp_path, bomb, "more than the 4096 bytes", raw_size=4096)
    assert sum(file.stat().st_size for file in tmp_path.rglob("*")) < 1 << 20


def test_a_window_that_would_take_gigabytes_is_refused(tmp_path: Path) -> None:
    options = {int(zstd.CompressionParameter.window_log): 30, int(zstd.CompressionParameter.compression_level): 1}
    compressor = zstd.ZstdCompressor(options=options)
    blob = compressor.compress(GOOD) + compressor.flush()
    refuse(tmp_path, GOOD, "not readable zstd", files=3, blob=blob)


BLOBS = {
    "not zstd": b"plain text, not a frame",
    "empty": b"",
    "cut short": zstd.compress(GOOD)[:-5],
    "two frames": zstd.compress(GOOD) + zstd.compress(b""),
    "trailing bytes": zstd.compress(GOOD) + b"x",
    "gzip": b"\x1f\x8b\x08\x00" + bytes(50),
}


@pytest.mark.parametrize("blob", BLOBS.values(), ids=BLOBS.keys())
def test_a_blob_that_is_not_one_whole_frame_is_refused(tmp_path: Path, blob: bytes) -> None:
    refuse(tmp_path, GOOD, "layer shared", files=3, blob=blob)


def test_nothing_is_written_through_a_link_that_is_there(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("precious")
    (tmp_path / "stage").mkdir()
    (tmp_path / "stage/three").symlink_to(tmp_path / "target")
    layer, blob = layer_of(tar(("three", b"new")), files=1)
    with pytest.raises(Exception, match="three"):
        run(tmp_path / "stage", layer, blob)
    assert (tmp_path / "target").read_text() == "precious"


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.data())
def test_any_flipped_bit_of_a_blob_is_refused(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    layer, blob = layer_of(GOOD, files=3)
    position = data.draw(st.integers(0, 8 * len(blob) - 1))
    bad = bytearray(blob)
    bad[position // 8] ^= 1 << (position % 8)
    with pytest.raises(EntryInvalid):
        run(tmp_path_factory.mktemp("flip"), layer, bytes(bad))


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.data())
def test_any_flipped_bit_of_a_tar_stays_inside_the_folder(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """The blob's digest is right here: an attacker made it. Whatever the tar says, it lands below the folder or nowhere."""
    folder = tmp_path_factory.mktemp("outer")
    (folder / "in").mkdir()
    raw = bytearray(GOOD)
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(0, len(raw) - 1))
        raw[position] = data.draw(st.integers(0, 255))
    layer, blob = layer_of(bytes(raw), files=3)
    with contextlib.suppress(EntryInvalid):
        run(folder / "in", layer, blob)
    assert [path.name for path in folder.iterdir()] == ["in"]


def test_other_tools_read_our_subset(tmp_path: Path) -> None:
    """What is accepted is plain pax tar: Python's own tarfile reads it to the same files."""
    layer, blob = layer_of(GOOD, files=3)
    run(tmp_path, layer, blob)
    with tarfile.open(fileobj=io.BytesIO(zstd.decompress(blob))) as archive:
        assert [member.name for member in archive] == ["a/one", "a/two", "three"]
