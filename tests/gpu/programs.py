"""The programs as users call them: `warmstart …` and a stock `vllm serve`, each in a process of its own."""

from __future__ import annotations

import contextlib
import dataclasses
import http.client
import itertools
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.gpu.cases import Server

from warmstart.gpus import GpuProfile, load_catalog

HIDDEN = {"CUDA_VISIBLE_DEVICES": ""}
_START_SECONDS = 1200.0
_STOP_SECONDS = 120.0
_ANSWER_SECONDS = 120.0
_TAIL_LINES = 40
_PROMPTS = tuple([17 * number % 1000 + 3 for number in range(start, start + length)] for start, length in ((1, 5), (50, 40)))
_ANSWER_TOKENS = 24


class ProgramError(AssertionError):
    """A program did not do what these tests need; the message holds the end of its log."""


@dataclasses.dataclass(frozen=True)
class Gpu:
    """The GPU in sight, as options of warmstart: the catalog's entry of that id, or the device's own where there is none."""

    id: str
    options: tuple[str, ...]

    def profile(self) -> GpuProfile:
        """Return that entry."""
        file = next((Path(word) for word in self.options if word.endswith(".json")), None)
        return load_catalog(file).get(self.id)


def warmstart(*words: str, env: dict[str, str], log: Path | None = None, hidden: bool = False) -> tuple[int, Any]:
    """Run a warmstart command; return its exit code and its JSON result. `hidden` keeps the GPU from it.

    What it says on the way goes to `log`, or to where this process's messages go.
    """
    environment = {**os.environ, **env, **(HIDDEN if hidden else {})}
    command = [sys.executable, "-m", "warmstart", *words]
    with contextlib.ExitStack() as stack:
        stderr = stack.enter_context(log.open("ab")) if log else None
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=stderr, text=True, check=False, env=environment)
    try:
        return done.returncode, json.loads(done.stdout)
    except ValueError:
        raise ProgramError(
            f"`warmstart {' '.join(words)}` ended with {done.returncode}, no result: {done.stdout[-400:]!r}"
        ) from None


def describe(folder: Path) -> Gpu:
    """Ask which GPU is here, and write its entry to `folder`."""
    code, document = warmstart("gpus", "describe", env={})
    if code != 0:
        raise ProgramError(f"these tests need an NVIDIA GPU: {document['reason']}")
    ((name, entry),) = document["gpus"].items()
    if entry.get("replaces"):
        return Gpu(name, ("--gpu", name))
    file = folder / "gpu.json"
    file.write_text(json.dumps(document))
    return Gpu(name, ("--gpu", name, "--gpu-file", str(file)))


def count() -> int:
    """Return the number of GPUs in sight."""
    return len(_visible())


def _visible() -> list[str]:
    """Return the GPUs in sight, as CUDA_VISIBLE_DEVICES names them."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [name.strip() for name in visible.split(",") if name.strip()]
    done = subprocess.run(["nvidia-smi", "-L"], stdout=subprocess.PIPE, text=True, check=False)
    return [str(place) for place, line in enumerate(done.stdout.splitlines()) if line.startswith("GPU ")]


@dataclasses.dataclass(frozen=True)
class Running:
    """A healthy server: where it listens, and the seconds from its start to its first good answer to /health."""

    port: int
    model: str
    ready_seconds: float

    def answers(self) -> list[dict[str, Any]]:
        """Ask a short and a longer prompt, greedily; return the tokens that came, each with its log probability."""
        found = []
        for prompt in _PROMPTS:
            asked = {"model": self.model, "prompt": prompt, "max_tokens": _ANSWER_TOKENS, "temperature": 0, "logprobs": 1}
            body = json.dumps({**asked, "ignore_eos": True}).encode()
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_ANSWER_SECONDS)
            connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
            (choice,) = json.load(connection.getresponse())["choices"]
            connection.close()
            found.append({"tokens": choice["logprobs"]["tokens"], "logprobs": choice["logprobs"]["token_logprobs"]})
        return found


@contextlib.contextmanager
def serving(
    server: Server, root: Path, log: Path, devices: Sequence[int] | None = None, home: Path | None = None
) -> Iterator[Running]:
    """Start a stock server on a cache root, wait until it is healthy, and stop it in the end.

    Its log, both streams, goes to `log`. `devices` are the GPUs that it sees, by their place among those in sight; all of them
    where it is None. Its Triton cache is in the cache root, unless it is given a `home`: then it keeps there what is not
    Inductor's, as a stock server does.

    Raises:
        ProgramError: it ended, or was not healthy in time.

    """
    port = _free_port()
    command = [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", server.model, *server.args, "--port", str(port)]
    environment = {**os.environ, **server.env, "VLLM_CACHE_ROOT": str(root)}
    environment |= {"TRITON_HOME": str(home)} if home else {"TRITON_CACHE_DIR": str(root / "triton")}
    if devices is not None:
        names = _visible()
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(names[place] for place in devices)
    begin = time.monotonic()
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, env=environment, start_new_session=True)
    try:
        while not _healthy(port):
            if process.poll() is not None:
                raise ProgramError(f"vllm serve ended with {process.returncode}:\n{_tail(log)}")
            if time.monotonic() - begin > _START_SECONDS:
                raise ProgramError(f"vllm serve is not healthy after {_START_SECONDS:.0f} s:\n{_tail(log)}")
            time.sleep(0.1)
        yield Running(port, server.model, round(time.monotonic() - begin, 2))
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


# Drawn, since another process of these tests may be starting servers as well, which listen only after a while.
_PORTS = itertools.count(18000 + secrets.randbelow(14000))


def _free_port() -> int:
    """Return a port that nobody listens on, below those that the system hands out: engines take some of these at any time."""
    while True:
        port = next(_PORTS)
        with socket.socket() as one, contextlib.suppress(OSError):
            one.bind(("127.0.0.1", port))
            return port


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-_TAIL_LINES:])
