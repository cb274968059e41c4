"""A hit is looked up and installed in milliseconds: nothing heavy is imported on its way."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.servers import S3Server
from tests.store.cache import KEY, snapshot
from tests.store.conftest import Entry, Place, s3_place

APP = Path(__file__).resolve().parents[2] / "app"
HIT = """
import sys
from pathlib import Path
from warmstart.archive import install, parse_manifest
from warmstart.store import open_store
store = open_store(sys.argv[1])
found = store.lookup(sys.argv[2])
install(parse_manifest(found.manifest, key=found.key), store.fetch, Path(sys.argv[3]))
store.touch(found.key)
print("\\n".join(sys.modules))
"""
HEAVY = {"torch", "vllm", "triton", "numpy", "pydantic", "yaml", "kubernetes", "fsspec", "s3fs", "botocore", "cryptography"} | {
    "msgspec", "dataclasses", "inspect", "logging", "concurrent.futures", "importlib.metadata", "tempfile"
}  # fmt: skip


def imported_by_a_hit(url: str, root: Path, **env: str) -> set[str]:
    """Install in a new process; return the names of all modules that it imported."""
    done = subprocess.run(
        [sys.executable, "-c", HIT, url, KEY, str(root)],
        env={**os.environ, "PYTHONPATH": str(APP), **env}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_a_hit_from_a_folder_imports_nothing_heavy(folder: Place, entry: Entry, tmp_path: Path) -> None:
    folder.store().publish(KEY, entry.document, entry.layers)
    imported = imported_by_a_hit(folder.url, tmp_path / "root")
    assert len(snapshot(tmp_path / "root")) == entry.packed.manifest.files
    assert imported.isdisjoint(HEAVY | {"obstore", "tarfile", "urllib.request", "ssl"})


def test_a_hit_from_s3_imports_obstore_and_nothing_heavy(
    seaweedfs: S3Server, entry: Entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    place = s3_place(seaweedfs, "obstore")
    place.store().publish(KEY, entry.document, entry.layers)
    imported = imported_by_a_hit(place.url, tmp_path / "root", HOME=str(tmp_path), **seaweedfs.environment())
    assert len(snapshot(tmp_path / "root")) == entry.packed.manifest.files
    assert "obstore" in imported
    assert not imported & HEAVY
