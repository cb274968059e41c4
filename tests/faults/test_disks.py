"""Disks that are full at any point, and mounts that are read-only: on small file systems made by the tests."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.faults.conftest import Place, mount, remount, says_why, unmount, visible
from tests.store.cache import KEY
from tests.store.conftest import Entry, make_entry
from tests.unit.workflow import standin

from warmstart.archive import install, parse_manifest
from warmstart.errors import EntryNotFound, NoSpaceError
from warmstart.store import open_store
from warmstart.workflow import compiling

PAGE = 4096


@contextlib.contextmanager
def mounted(folder: Path, options: str) -> Iterator[Path]:
    mount(folder, options)
    try:
        yield folder
    finally:
        unmount(folder)


@pytest.fixture(scope="module")
def small_entry(tmp_path_factory: pytest.TempPathFactory) -> Entry:
    return make_entry(tmp_path_factory.mktemp("entry"), artifact_bytes=9000)


def test_a_cache_root_that_fills_up_at_any_page_shows_all_of_an_entry_or_nothing(
    small_entry: Entry, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = open_store(str(tmp_path / "store"))
    store.publish(KEY, small_entry.document, small_entry.layers)
    manifest = parse_manifest(store.lookup(KEY).manifest, key=KEY)
    install(manifest, store.fetch, tmp_path / "whole")
    whole = visible(tmp_path / "whole")
    counts, said = {"refused": 0, "installed": 0}, set()
    with mounted(tmp_path / "small", "size=1m") as disk:
        for pages in range(24):
            remount(disk, f"size={PAGE * (pages + 1)}")
            try:
                install(manifest, store.fetch, disk / "root")
                counts["installed"] += 1
                assert visible(disk / "root") == whole
            except NoSpaceError as error:
                counts["refused"] += 1
                said.add(error.hint)
                assert visible(disk / "root") == {}
            remount(disk, "size=1m")
            install(manifest, store.fetch, disk / "root")
            assert visible(disk / "root") == whole
            _empty(disk)
    with capsys.disabled():
        print(f"\ninstall into a disk that fills up: {counts}")
    assert all(counts.values())
    assert all("free space" in hint for hint in said)


def test_a_cache_root_that_fills_up_while_it_is_written_shows_all_or_nothing(small_entry: Entry, tmp_path: Path) -> None:
    """Another process takes the space once the install has begun, so that its own look at the free space does not help."""
    store = open_store(str(tmp_path / "store"))
    store.publish(KEY, small_entry.document, small_entry.layers)
    manifest = parse_manifest(store.lookup(KEY).manifest, key=KEY)
    install(manifest, store.fetch, tmp_path / "whole")
    whole = visible(tmp_path / "whole")
    refused = 0
    with mounted(tmp_path / "small", "size=1m") as disk:
        for pages in range(1, 16):

            def fetch(digest: str, size: int, left: int = pages) -> Iterator[bytes]:
                remount(disk, f"size={PAGE * (left + 4)}")
                return store.fetch(digest, size)

            try:
                install(manifest, fetch, disk / "root")
            except NoSpaceError:
                refused += 1
                assert visible(disk / "root") == {}
            remount(disk, "size=1m")
            install(manifest, store.fetch, disk / "root")
            assert visible(disk / "root") == whole
            _empty(disk)
    assert refused


def test_a_store_that_fills_up_at_any_page_holds_all_of_an_entry_or_none(
    small_entry: Entry, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    counts, said = {"refused": 0, "published": 0}, set()
    with mounted(tmp_path / "small", "size=1m") as disk:
        for pages in range(12):
            remount(disk, f"size={PAGE * (pages + 1)}")
            url = str(disk / "store")
            try:
                open_store(url).publish(KEY, small_entry.document, small_entry.layers)
                counts["published"] += 1
            except NoSpaceError as error:
                counts["refused"] += 1
                said.add(error.hint)
                with pytest.raises(EntryNotFound):
                    open_store(url).lookup(KEY)
            remount(disk, "size=1m")
            open_store(url).publish(KEY, small_entry.document, small_entry.layers)
            assert not open_store(url).verify().findings
            assert not list(disk.rglob(".tmp-*"))
            _empty(disk)
    with capsys.disabled():
        print(f"\npublish into a store that fills up: {counts}")
    assert all(counts.values())
    assert all("free space" in hint for hint in said)


def _empty(disk: Path) -> None:
    import shutil

    for path in disk.iterdir():
        shutil.rmtree(path)


def test_a_run_whose_cache_root_is_full_says_so_and_the_next_one_hits(place: Place, tmp_path: Path) -> None:
    with mounted(tmp_path / "cache", "size=64k") as root:
        (root / "weights").write_bytes(bytes(60_000))
        done = place.call("run", WARMSTART_DEADLINE="60")
        assert (done.code, done.document["outcome"]) == (0, "failed")
        assert "free" in says_why(done.document)
        assert set(visible(root)) == {"weights"}
        (root / "weights").unlink()
        remount(root, "size=4m")
        assert place.call("run").document["outcome"] in ("hit", "compiled")
        assert place.artifacts()


def test_a_run_whose_store_is_full_installs_what_it_compiled_and_says_that_it_is_not_published(
    place: Place, tmp_path: Path
) -> None:
    with mounted(tmp_path / "volume", "size=32k") as volume:
        (volume / "other").mkdir()
        store = volume / "store"
        env = {"WARMSTART_STORE": str(store), "WARMSTART_CLAIMS": "off"}
        open_store(str(store)).claim(KEY, "x", 1)
        (volume / "other/data").write_bytes(bytes(8000))
        with contextlib.suppress(OSError):
            (volume / "other/more").write_bytes(bytes(64_000))
        done = place.call("run", **env)
        assert (done.code, done.document["outcome"]) == (0, "compiled"), done.document
        assert "not published" in says_why(done.document)
        assert place.artifacts()
        remount(volume, "size=4m")
        second = place.call("run", **env, WARMSTART_CACHE_ROOT=str(tmp_path / "second"))
        assert second.document["outcome"] == "compiled"
        assert not second.document["warnings"]


def test_a_run_whose_work_folder_fills_up_says_so(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def filling(request: Any, stop: Any) -> Any:
        report = standin.run_pass(request, stop)
        with contextlib.suppress(OSError):
            (scratch / "other").write_bytes(bytes(4 << 20))
        return report

    with mounted(tmp_path / "scratch", "size=1m") as scratch, monkeypatch.context() as patch:
        patch.setattr(compiling, "start", filling)
        done = place.call("run", WARMSTART_WORK_DIR=str(scratch))
        assert (done.code, done.document["outcome"]) == (0, "failed")
        assert "No space left" in says_why(done.document)
        assert [path.name for path in scratch.iterdir()] == ["other"]
    assert not place.artifacts()
    assert place.call("run").document["outcome"] == "compiled"


def test_a_read_only_store_is_read_and_a_miss_there_is_compiled_but_not_published(place: Place, tmp_path: Path) -> None:
    with mounted(tmp_path / "store", "size=4m") as store:
        place.call("run")
        whole = visible(place.root)
        remount(store, "ro")
        place.root.rename(tmp_path / "first")
        hit = place.call("run")
        assert (hit.code, hit.document["outcome"], visible(place.root)) == (0, "hit", whole)
        place.serve("--max-model-len=8192")
        miss = place.call("run")
        assert (miss.code, miss.document["outcome"]) == (0, "compiled"), miss.document
        assert "not published" in says_why(miss.document)
        remount(store, "rw")
        place.serve("--max-model-len=4096")
        place.root.rename(tmp_path / "second")
        assert place.call("run", "--on-miss=skip").document["outcome"] == "hit"


def test_a_read_only_cache_root_is_said_and_a_writable_one_hits(place: Place, tmp_path: Path) -> None:
    place.call("run")
    place.root.rename(tmp_path / "first")
    with mounted(tmp_path / "cache", "size=4m,ro") as root:
        done = place.call("run", "--on-miss=skip")
        assert (done.code, done.document["outcome"]) == (0, "failed")
        assert "Read-only" in says_why(done.document)
        remount(root, "rw")
        assert place.call("run", "--on-miss=skip").document["outcome"] == "hit"
        remount(root, "ro")
        again = place.call("run", "--on-miss=skip")
        assert (again.document["outcome"], again.document["reason"]) == ("hit", "already installed")
