"""Triton's group files: written where an entry is installed, found by Triton, and left alone where a server made them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from warmstart.archive import kernels, link_kernels
from warmstart.archive.rules import decide
from warmstart.compiler import launches

HASH = "WWQCR6JQKMON77SQTFIT6ENGWQZA5M7CVC4HSAS2LM7V2GQ7YGSQ"


def kernel(root: Path, name: str = "_k", digest: str = HASH) -> Path:
    folder = root / kernels.FOLDER / digest
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text("{}")
    (folder / f"{name}.cubin").write_bytes(b"\x7fELF")
    return folder


def test_both_rooms_mean_the_same_folder() -> None:
    assert launches.FOLDER == kernels.FOLDER


def test_a_kernel_is_found_where_the_server_sees_it(tmp_path: Path) -> None:
    folder = kernel(tmp_path)
    assert link_kernels(tmp_path, "/var/cache/vllm/triton") == 1
    assert json.loads((folder / "__grp___k.json").read_text()) == {
        "child_paths": {name: f"/var/cache/vllm/triton/{HASH}/{name}" for name in ("_k.json", "_k.cubin")}
    }


def test_triton_itself_finds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from triton.runtime import cache

    folder = kernel(tmp_path)
    link_kernels(tmp_path, str(tmp_path / kernels.FOLDER))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / kernels.FOLDER))
    found = cache.FileCacheManager(HASH).get_group("_k.json")
    assert found == {name: str(folder / name) for name in ("_k.json", "_k.cubin")}


def test_linking_again_changes_nothing_and_a_servers_own_link_stays(tmp_path: Path) -> None:
    ours, theirs = kernel(tmp_path), kernel(tmp_path, digest="A" * 52)
    (theirs / "__grp___k.json").write_text("the server's")
    assert link_kernels(tmp_path, "/t") == 2
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    assert link_kernels(tmp_path, "/t") == 2
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()} == before
    assert (theirs / "__grp___k.json").read_text() == "the server's"
    assert (ours / "__grp___k.json").is_file()


def test_what_is_no_kernel_is_not_linked(tmp_path: Path) -> None:
    folder = kernel(tmp_path)
    (folder / "_k.autotune.json").write_text("{}")
    (folder / "half.json").write_text("{}")
    (tmp_path / kernels.FOLDER / "a file").write_text("")
    assert link_kernels(tmp_path, "/t") == 1
    assert sorted(path.name for path in folder.glob("__grp__*")) == ["__grp___k.json"]


def test_an_entry_without_kernels_is_none_the_worse(tmp_path: Path) -> None:
    assert link_kernels(tmp_path, "/t") == 0
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    kernel(tmp_path).joinpath("__grp___k.json.d").mkdir()
    (tmp_path / kernels.FOLDER).rename(tmp_path / "elsewhere")
    (tmp_path / kernels.FOLDER).write_text("in the way")
    with pytest.raises(OSError, match="Not a directory"):
        link_kernels(tmp_path, "/t")


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("_k.cubin", True),
        ("_k.json", True),
        ("_k.autotune.json", True),
        ("cuda_utils.cpython-312-x86_64-linux-gnu.so", True),
        ("__triton_launcher.cpython-312-x86_64-linux-gnu.so", False),
        ("__grp___k.json", False),
        ("_k.ptx", False),
        ("_k.source", False),
        ("tmp.pid_7_x/_k.json", False),
        ("lock", False),
    ],
)
def test_what_travels_of_a_kernel(name: str, kept: bool) -> None:
    assert decide(f"{kernels.FOLDER}/{HASH}/{name}").keep is kept
