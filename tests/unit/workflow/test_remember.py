"""The manifest that is kept beside an installed cache: whole or not at all, whoever else writes it at the same time."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.unit.archive.blobs import KEY, layer_of, manifest_of, tar

from warmstart.workflow import entries

MANIFEST = manifest_of(layer_of(tar(("a", b"x")), files=1)[0])


def names(root: Path) -> list[str]:
    return sorted(path.name for path in (root / ".warmstart").iterdir())


def test_containers_whose_processes_have_the_same_number_do_not_write_into_each_others_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getpid", lambda: 1)
    (tmp_path / ".warmstart").mkdir()
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda _: entries.remember(tmp_path, MANIFEST), range(200)))
    assert names(tmp_path) == [f"manifest-{KEY}.json"]
    assert entries.remembered(tmp_path, KEY) == MANIFEST


def test_a_half_written_one_of_a_process_that_died_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / ".warmstart").mkdir()
    for name in (f"manifest-{KEY}.1", "new-0000000000000001"):
        (tmp_path / ".warmstart" / name).write_bytes(b"{")
    entries.remember(tmp_path, MANIFEST)
    assert entries.remembered(tmp_path, KEY) == MANIFEST


def test_a_place_that_cannot_be_written_is_passed_over(tmp_path: Path) -> None:
    entries.remember(tmp_path / "missing", MANIFEST)
    assert entries.remembered(tmp_path / "missing", KEY) is None
    assert list(tmp_path.iterdir()) == []
