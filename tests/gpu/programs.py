"""The programs as users call them: `warmstart …` and a stock `vllm serve`, each in a process of its own."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from tests.gpu.cases import Server

_HIDDEN = {"CUDA_VISIBLE_DEVICES": ""}
_START_SECONDS = 1200.0
_STOP_SECONDS = 120.0
_TAIL_LINES = 40


@dataclasses.dataclass(frozen=True)
class Gpu:
    """The GPU in sight, as options of warmstart: the catalog's entry of that id, or the device's own where there is none."""

    id: str
    options: tuple[str, ...]


def warmstart(*words: str, env: dict[str, str], hidden: bool = False) -> tuple[int, Any]:
    """Run a warmstart command; return its exit code and its JSON result. `hidden` keeps the GPU from it."""
    environment = {**os.environ, **env, **(_HIDDEN if hidden else {})}
    command = [sys.executable, "-m", "warmstart", *words]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, env=environment)
    try:
        return done.returncode, json.loads(done.stdout)
    except ValueError:
        pytest.fail(f"`warmstart {' '.join(words)}` ended with {done.returncode} and no result: {done.stdout[-400:]!r}")


def describe(folder: Path) -> Gpu:
    """Ask which GPU is here, and write its entry to `folder`."""
    code, document = warmstart("gpus", "describe", env={})
    if code != 0:
        pytest.fail(f"these tests need an NVIDIA GPU: {document['reason']}")
    ((name, entry),) = document["gpus"].items()
    if entry.get("replaces"):
        return Gpu(name, ("--gpu", name))
    file = folder / "gpu.json"
    file.write_text(json.dumps(document))
    return Gpu(name, ("--gpu", name, "--gpu-file", str(file)))


def serve(server: Server, root: Path, log: Path) -> float:
    """Start a stock server on a cache root, wait until it is healthy, and stop it; return the seconds that it took.

    Its log, both streams, goes to `log`.
    """
    port = _free_port()
    command = [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", server.model, *server.args, "--port", str(port)]
    environment = {**os.environ, **server.env, "VLLM_CACHE_ROOT": str(root)}
    begin = time.monotonic()
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, env=environment, start_new_session=True)
    try:
        while not _healthy(port):
            if process.poll() is not None:
                pytest.fail(f"vllm serve ended with {process.returncode}:\n{_tail(log)}")
            if time.monotonic() - begin > _START_SECONDS:
                pytest.fail(f"vllm serve is not healthy after {_START_SECONDS:.0f} s:\n{_tail(log)}")
            time.sleep(0.25)
        return time.monotonic() - begin
    finally:
        _stop(process)


def _healthy(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End the server and its engine: the next one needs the GPU's memory."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            continue
    process.wait(_STOP_SECONDS)


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-_TAIL_LINES:])
