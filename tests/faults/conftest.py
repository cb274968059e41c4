"""Small disks, a proxy that misbehaves in front of a real S3 server, and the command line to call on them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import servers
from tests.faults.proxy import Proxy, proxied
from tests.unit.workflow.conftest import Place
from tests.unit.workflow.conftest import place as place


@pytest.fixture(scope="session")
def seaweedfs() -> Iterator[servers.S3Server]:
    with servers.seaweedfs() as server:
        yield server


@pytest.fixture(scope="session")
def proxy(seaweedfs: servers.S3Server) -> Iterator[Proxy]:
    with proxied(seaweedfs.endpoint) as running:
        yield running


def mount(folder: Path, options: str) -> None:
    """Mount a small file system of its own on `folder`."""
    folder.mkdir(exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.fail(f"these tests mount small file systems and need root for it: {done.stderr.strip()}")


def remount(folder: Path, options: str) -> None:
    """Change the options of a mounted file system."""
    subprocess.run(["mount", "-o", f"remount,{options}", str(folder)], check=True, capture_output=True)


def unmount(folder: Path) -> None:
    """Unmount."""
    subprocess.run(["umount", str(folder)], check=True)


def on_s3(server: servers.S3Server, endpoint: str, prefix: str, **more: str) -> dict[str, str]:
    """Return the settings that put the store of `Place` on an S3 server, reached by way of `endpoint`."""
    return {
        "WARMSTART_STORE": f"s3://{server.bucket}/{prefix}/store",
        "WARMSTART_STORE_OPTIONS": json.dumps({**server.storage(), "endpoint_url": endpoint}),
        **more,
    }


def visible(root: Path) -> dict[str, bytes]:
    """Return what a server would find below a cache root: every file but ours."""
    if not root.exists():
        return {}
    files = (path for path in root.rglob("*") if path.is_file() and ".warmstart" not in path.relative_to(root).parts)
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


def says_why(document: dict[str, object]) -> str:
    """Return what a result says of a failure or a miss: one line, in our words."""
    text = " ".join([str(document["reason"]), *(str(warning) for warning in document.get("warnings") or [])])  # type: ignore[attr-defined]
    assert text.strip(), document
    assert "unexpected" not in text, text
    assert "Traceback" not in text
    assert "\n" not in text
    return text


__all__ = ["Place"]
