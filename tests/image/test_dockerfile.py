"""The Dockerfile: linted by hadolint, and given exactly the files that it copies. Needs no container engine."""

from __future__ import annotations

import re
import subprocess
import sys

from packaging.requirements import Requirement
from tests.chart.tools import program
from tests.image.engine import ROOT

_DOCKERFILE = ROOT / "Dockerfile"


def test_hadolint_finds_nothing() -> None:
    """No rule is switched off, not even for information."""
    command = [program("hadolint"), "--config", ROOT / ".hadolint.yaml", _DOCKERFILE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
    assert "ignored" not in (ROOT / ".hadolint.yaml").read_text()
    assert "hadolint ignore" not in _DOCKERFILE.read_text()


def test_the_build_context_is_what_the_dockerfile_copies() -> None:
    """Nothing else travels to a build, so that no secret and no cache of a checkout ends in a layer."""
    copied = set()
    for line in re.findall(r"^COPY (?!--from)(.+)$", _DOCKERFILE.read_text(), re.MULTILINE):
        copied.update(line.split()[:-1])
    first, *allowed = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and line[0] not in "#"]
    assert first == "*"
    kept = {line.removeprefix("!") for line in allowed if line.startswith("!")} - {"Dockerfile"}
    assert {name for name in copied if not any(name == one or name.startswith(f"{one}/") for one in kept)} == set()
    assert {one for one in kept if not any(name == one or name.startswith(f"{one}/") for name in copied)} == set()


def test_both_targets_run_as_no_root_with_the_same_entrypoint() -> None:
    """By number, so that the kubelet can check runAsNonRoot."""
    text = _DOCKERFILE.read_text()
    assert re.findall(r"^USER (.+)$", text, re.MULTILINE) == ["0", "65532:0", "65532:0"]
    assert text.count('ENTRYPOINT ["warmstart"]') == 2
    assert "ARG VLLM_IMAGE=vllm/vllm-openai:v0.33.0" in text


def test_the_store_images_lock_holds_what_the_package_depends_on() -> None:
    """requirements/store.txt is pyproject.toml's dependencies with the extras that docker/dependencies.py names, resolved."""
    command = [sys.executable, ROOT / "docker" / "dependencies.py", ROOT / "pyproject.toml"]
    wanted = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    lock = (ROOT / "requirements" / "store.txt").read_text()
    locked = {name.lower(): version for name, version in re.findall(r"^([A-Za-z0-9-]+)==([^\s;\\]+)", lock, re.MULTILINE)}
    assert len(wanted) >= 8
    for line in wanted:
        requirement = Requirement(line)
        name = re.sub(r"[-_.]+", "-", requirement.name).lower()
        assert requirement.specifier.contains(locked[name]), line
    assert not {"vllm", "torch"} & locked.keys()
