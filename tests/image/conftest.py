"""Both images, built once from a base that stands in for the registry's."""

from __future__ import annotations

import dataclasses
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.image.engine import CACHE, ROOT, Engine

_STAND_IN = Path(__file__).parent / "vllm_stand_in"
_SOURCES = Path("/etc/apt/sources.list.d/debian.sources")
PYTHON_BASE = "localhost/warmstart-test/python:bookworm"
_VLLM = "localhost/warmstart-test/vllm:v0.33.0"
# What vLLM's image has of the packages that warmstart needs too; the lock file says in which version.
_IN_VLLM = ("msgspec", "pydantic", "pyyaml", "fsspec", "cryptography", "prometheus-client", "aiohttp", "urllib3")


@dataclasses.dataclass(frozen=True)
class Images:
    """Names of the images, and what their builds said."""

    engine: Engine
    compiler: str
    store: str
    compiler_log: str
    vllm: str


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """Yield buildah and podman, or say how to get them."""
    if missing := Engine.missing():
        pytest.fail(f"{', '.join(missing)} not found; run tests/image/setup.sh as root")
    engine = Engine()
    yield engine
    engine.close()


@pytest.fixture(scope="session")
def images(engine: Engine) -> Images:
    """Build both targets of the Dockerfile."""
    python_base(engine)
    _vllm_base(engine)
    compiler, store = "localhost/warmstart-test/warmstart:test", "localhost/warmstart-test/warmstart-store:test"
    arguments = {"VLLM_IMAGE": _VLLM, "PYTHON_IMAGE": PYTHON_BASE, "REVISION": "0123abc"}
    log = engine.build(ROOT / "Dockerfile", compiler, context=ROOT, target="warmstart", args=arguments)
    engine.build(ROOT / "Dockerfile", store, context=ROOT, target="warmstart-store", args=arguments)
    return Images(engine, compiler, store, log, _VLLM)


def python_base(engine: Engine) -> None:
    """Make Debian's Python an image, from the machine's own package sources."""
    if engine.has(PYTHON_BASE):
        return
    archive = CACHE / "base.tar"
    if not archive.exists():
        staged = archive.with_suffix(".part")
        packages = "--include=python3,python3-pip,gcc,libc6-dev,ca-certificates"
        command = ["mmdebstrap", "--variant=minbase", "--format=tar", packages, "bookworm", str(staged), str(_SOURCES)]
        subprocess.run(command, check=True, capture_output=True)
        staged.rename(archive)
    context = CACHE / "base-context"
    context.mkdir(exist_ok=True)
    (context / "Containerfile").write_text("FROM scratch\nADD base.tar /\n")
    shutil.copyfile(archive, context / "base.tar")
    engine.build(context / "Containerfile", PYTHON_BASE, context=context)
    shutil.rmtree(context)


def _vllm_base(engine: Engine) -> None:
    context = CACHE / "vllm-context"
    shutil.rmtree(context, ignore_errors=True)
    shutil.copytree(_STAND_IN, context)
    locked = dict(re.findall(r"^([a-z0-9-]+)==([^\s;]+)", (ROOT / "requirements" / "lock.txt").read_text(), re.MULTILINE))
    (context / "constraints.txt").write_text("".join(f"{name}=={locked[name]}\n" for name in _IN_VLLM))
    engine.build(context / "Containerfile", _VLLM, context=context, args={"BASE": PYTHON_BASE, "VLLM_VERSION": "0.33.0"})
