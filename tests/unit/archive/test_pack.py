"""Packing takes what a warm start reads, the same way each time, and only from a cache that is finished."""

from __future__ import annotations

import os
import random
import shutil
import threading
from pathlib import Path

import pytest
from tests.store.cache import AOT_KEY, KEY, facts, make_cache, put

from warmstart.archive import Packed, pack, parse_manifest
from warmstart.archive.rules import RULES, UNKNOWN, decide, layer_of
from warmstart.errors import CompileError, NoSpaceError, TemporaryError, UsageError

GENERATOR = random.Random(5)  # noqa: S311


def pack_it(root: Path, work: Path, **options: object) -> Packed:
    arguments: dict[str, object] = {"key": KEY, "factors": {"model": "m"}, "facts": facts(ranks=2), "level": 3, **options}
    return pack(root, work, **arguments)  # type: ignore[arg-type]


def test_what_is_packed_is_counted_and_split_by_rank(tmp_path: Path) -> None:
    root = make_cache(tmp_path / "cache", ranks=2)
    packed = pack_it(root, tmp_path / "work")
    manifest = packed.manifest
    assert parse_manifest(packed.document, key=KEY) == manifest
    assert [layer.name for layer in manifest.layers] == ["shared", "rank-0-0", "rank-1-0"]
    assert manifest.files == 7
    assert manifest.raw_bytes == 2 * (200_000 + 2 * 3000) + 900
    assert sum(packed.dropped.values()) == 12 + 4 + 1
    assert packed.folder_bytes == sum(path.stat().st_size for path in root.rglob("*") if path.is_file())
    for item in packed.layers:
        assert item.path.stat().st_size == item.layer.size
    assert packed.stored_bytes < packed.folder_bytes / 5


def test_the_same_folder_gives_the_same_bytes_again(tmp_path: Path) -> None:
    root = make_cache(tmp_path / "cache", ranks=2)
    first = pack_it(root, tmp_path / "one")
    copy = tmp_path / "copy"
    for path in sorted(root.rglob("*"), reverse=True):
        if path.is_file():
            target = copy / path.relative_to(root)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, target)
            target.chmod(0o600)
    second = pack_it(copy, tmp_path / "two")
    assert second.manifest.layers == first.manifest.layers


def test_other_times_change_the_digest_but_not_the_content(tmp_path: Path) -> None:
    root = make_cache(tmp_path / "cache", ranks=2)
    first = pack_it(root, tmp_path / "one").manifest.layers
    os.utime(root / f"torch_compile_cache/torch_aot_compile/{AOT_KEY}/rank_1_0/model", ns=(1, 1_700_000_000_000_000_001))
    second = pack_it(root, tmp_path / "two").manifest.layers
    assert [a.digest == b.digest for a, b in zip(first, second, strict=True)] == [True, True, False]
    assert [a.content == b.content for a, b in zip(first, second, strict=True)] == [True, True, True]


def test_other_bytes_change_both(tmp_path: Path) -> None:
    root = make_cache(tmp_path / "cache", ranks=2)
    first = pack_it(root, tmp_path / "one").manifest.layers
    put(root / "modelinfos/new.json", b"{}", GENERATOR)
    second = pack_it(root, tmp_path / "two").manifest.layers
    assert [a.digest == b.digest for a, b in zip(first, second, strict=True)] == [False, True, True]
    assert [a.content == b.content for a, b in zip(first, second, strict=True)] == [False, True, True]


def test_other_models_artifacts_in_a_shared_root_stay_there(tmp_path: Path) -> None:
    root = make_cache(tmp_path / "cache", ranks=2)
    make_cache(root, ranks=2, aot_key="ee" * 32, seed=9)
    packed = pack_it(root, tmp_path / "work")
    assert packed.dropped["of another AOT key"] == 2 + 12
    assert packed.manifest.files == 7


@pytest.mark.parametrize(
    ("path", "kept"),
    [
        (f"torch_compile_cache/torch_aot_compile/{AOT_KEY}/rank_0_0/model", True),
        (f"torch_compile_cache/torch_aot_compile/{AOT_KEY}/rank_12_3/model", True),
        (f"torch_compile_cache/torch_aot_compile/{AOT_KEY}/inductor_cache/ab/cab.py", False),
        (f"torch_compile_cache/torch_aot_compile/{AOT_KEY}/inductor_cache/triton/0/X/k.cubin", False),
        ("torch_compile_cache/0123456789/rank_0_0/backbone/cache_key_factors.json", True),
        ("torch_compile_cache/0123456789/rank_0_0/backbone/vllm_compile_cache.py", True),
        ("torch_compile_cache/0123456789/rank_0_0/backbone/computation_graph.py", False),
        ("torch_compile_cache/0123456789/rank_0_0/eagle_head/transformed_code.py", False),
        ("modelinfos/vllm-model_executor-models-qwen3.json", True),
        ("torch_compile_cache/x/lock.lock", False),
        ("a.tmp.1234", False),
        (".warmstart/key.json", False),
        ("gpu_p2p_access_cache_for_0,1.json", False),
        ("something/nobody/knows", True),
    ],
)
def test_each_kind_of_file_meets_its_rule(path: str, kept: bool) -> None:
    assert decide(path).keep is kept


def test_every_rule_has_a_reason_and_the_unknown_is_kept() -> None:
    assert all(rule.reason for rule in RULES)
    assert UNKNOWN.keep


def test_a_path_belongs_to_its_ranks_layer() -> None:
    assert layer_of("torch_compile_cache/torch_aot_compile/x/rank_3_1/model") == "rank-3-1"
    assert layer_of("torch_compile_cache/x/rank_03_001/y") == "rank-3-1"
    assert layer_of("modelinfos/rank_1.json") == "shared"


def test_a_cache_without_an_artifact_is_refused(tmp_path: Path) -> None:
    put(tmp_path / "cache/modelinfos/a.json", b"{}", GENERATOR)
    with pytest.raises(CompileError, match="no AOT artifact"):
        pack_it(tmp_path / "cache", tmp_path / "work")


def test_an_empty_artifact_is_refused(tmp_path: Path) -> None:
    root = make_cache(tmp_path / "cache", ranks=2)
    (root / f"torch_compile_cache/torch_aot_compile/{AOT_KEY}/rank_1_0/model").write_bytes(b"")
    with pytest.raises(CompileError, match="is empty"):
        pack_it(root, tmp_path / "work")


def test_a_missing_aot_key_is_refused(tmp_path: Path) -> None:
    root = make_cache(tmp_path / "cache", ranks=2)
    with pytest.raises(CompileError, match="no artifact for the AOT key"):
        pack_it(root, tmp_path / "work", facts=facts(aot_keys=(AOT_KEY, "dd" * 32)))


def test_a_cache_that_is_being_written_is_refused(tmp_path: Path) -> None:
    root = make_cache(tmp_path / "cache", ranks=2)
    stop = threading.Event()

    def write() -> None:
        number = 0
        while not stop.wait(0.02):
            number += 1
            put(root / f"modelinfos/{number}.json", b"{}", GENERATOR)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        with pytest.raises(TemporaryError, match="still being written"):
            pack_it(root, tmp_path / "work", settle_seconds=0.3)
    finally:
        stop.set()
        writer.join()


def test_a_file_that_changes_under_the_packing_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = make_cache(tmp_path / "cache", ranks=2)
    artifact = root / f"torch_compile_cache/torch_aot_compile/{AOT_KEY}/rank_0_0/model"
    from warmstart.archive import packer

    inner = packer._pack_layer

    def change_after(*args: object) -> object:
        done = inner(*args)  # type: ignore[arg-type]
        artifact.write_bytes(b"rewritten")
        return done

    monkeypatch.setattr(packer, "_pack_layer", change_after)
    with pytest.raises(TemporaryError, match="still being written"):
        pack_it(root, tmp_path / "work")


def test_names_that_would_not_unpack_are_refused(tmp_path: Path) -> None:
    root = make_cache(tmp_path / "cache", ranks=2)
    (root / "modelinfos" / "line\nfeed.json").write_bytes(b"{}")
    with pytest.raises(UsageError, match="control character") as caught:
        pack_it(root, tmp_path / "work")
    assert "\n" not in str(caught.value)


def test_bytes_that_are_no_utf8_in_a_name_are_refused(tmp_path: Path) -> None:
    root = make_cache(tmp_path / "cache", ranks=2)
    (Path(os.fsdecode(os.fsencode(root) + b"/modelinfos/\xff.json"))).write_bytes(b"{}")
    with pytest.raises(UsageError, match="UTF-8"):
        pack_it(root, tmp_path / "work")


def test_links_and_pipes_are_left_out(tmp_path: Path) -> None:
    root = make_cache(tmp_path / "cache", ranks=2)
    (root / "modelinfos/link.json").symlink_to("/etc/passwd")
    (root / "folder_link").symlink_to("/etc")
    os.mkfifo(root / "modelinfos/pipe")
    packed = pack_it(root, tmp_path / "work")
    assert packed.dropped["not a regular file"] == 3
    assert packed.manifest.files == 7


def test_a_root_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read"):
        pack_it(tmp_path / "none", tmp_path / "work")


def test_a_key_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="64 hex"):
        pack_it(make_cache(tmp_path / "cache"), tmp_path / "work", key="abc")


def test_a_full_disk_is_said_as_such(tmp_path: Path, small_disk: Path) -> None:
    root = make_cache(tmp_path / "cache", ranks=2, artifact_bytes=3_000_000)
    noise = random.Random(1).randbytes(3_000_000)  # noqa: S311
    (root / f"torch_compile_cache/torch_aot_compile/{AOT_KEY}/rank_0_0/model").write_bytes(noise)
    with pytest.raises(NoSpaceError, match="No space left"):
        pack_it(root, small_disk / "work")
