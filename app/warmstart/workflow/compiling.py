"""One compile for many: claim the key, run the pass in a local folder, pack, publish."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warmstart import identity
from warmstart.errors import AccessDenied, NoSpaceError, TemporaryError, UsageError, WarmstartError, shorten
from warmstart.log import Log
from warmstart.workflow import resolve
from warmstart.workflow.habitat import habitable
from warmstart.workflow.stopping import Stop

if TYPE_CHECKING:
    from warmstart.archive import Packed
    from warmstart.compiler.report import CompileReport, CompileRequest
    from warmstart.settings import Settings
    from warmstart.store import Claim, Claims, Found, Store
    from warmstart.workflow.resolve import Target

LOG = Log("warmstart.compile")

_HEARTBEATS_PER_TTL = 3


@dataclasses.dataclass(frozen=True)
class Made:
    """What a compile left: its report, and the packed entry; None where there was nothing to compile."""

    report: CompileReport
    packed: Packed | None


class Turn:
    """What waiting for one's turn came to: an entry that another has published, or the right to compile."""

    def __init__(self, found: Found | None, claim: Claim | None) -> None:
        self.found = found
        self.claim = claim


def take_turn(settings: Settings, store: Store, key: str, stop: Stop) -> Turn:
    """Claim `key`, or wait for the one who holds it. Without claims, or where none may be made, everyone compiles.

    Raises TemporaryError where another still compiles at the deadline.
    """
    claims = _claims(settings, store)
    if claims is None:
        return Turn(None, None)
    owner = f"{settings.pod_name or socket.gethostname()}-{os.getpid()}"

    def claim() -> Claim | None:
        return claims.claim(key, owner, settings.claim_ttl)

    try:
        won = store.wait_for(key, time.monotonic() + min(stop.remaining(), _A_YEAR), claim)
    except AccessDenied as error:
        LOG.warning("claims cannot be made, so others may compile the same: %s", error)
        return Turn(None, None)
    if won is None:
        raise TemporaryError(f"another still compiles key {key[:12]} at the deadline", hint="give WARMSTART_DEADLINE more time")
    return Turn(None, won) if hasattr(won, "heartbeat") else Turn(won, None)  # type: ignore[arg-type]


_A_YEAR = 365 * 86400.0


def _claims(settings: Settings, store: Store) -> Claims | None:
    if settings.claims == "off":
        return None
    if settings.claims == "store":
        return store
    if not settings.pod_namespace:
        raise UsageError("claims by Lease need a namespace", hint="set WARMSTART_POD_NAMESPACE from metadata.namespace")
    from warmstart.cluster.api import connect
    from warmstart.cluster.leases import LeaseClaims

    return LeaseClaims(connect(), settings.pod_namespace)


@contextlib.contextmanager
def held(claim: Claim | None, ttl: float) -> Iterator[None]:
    """Keep a claim alive while the body runs, and let go of it whatever happens."""
    if claim is None:
        yield
        return
    over = threading.Event()

    def beat() -> None:
        while not over.wait(ttl / _HEARTBEATS_PER_TTL):
            try:
                if not claim.heartbeat():
                    LOG.warning("another has taken over the claim on key %s; going on, publishing stays safe", claim.key[:12])
                    return
            except WarmstartError as error:
                LOG.warning("cannot renew the claim on key %s: %s", claim.key[:12], error)

    thread = threading.Thread(target=beat, name="claim", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        with contextlib.suppress(WarmstartError):
            claim.release()


@contextlib.contextmanager
def work_folder(settings: Settings) -> Iterator[Path]:
    """Make a folder on local disk for one compile, and remove it whatever happens.

    Raises NoSpaceError or UsageError where it cannot be made.
    """
    try:
        if settings.work_dir is not None:
            settings.work_dir.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix="warmstart-", dir=settings.work_dir))
    except OSError as error:
        where = settings.work_dir or tempfile.gettempdir()
        kind = NoSpaceError if error.errno in {28, 122} else UsageError
        raise kind(
            f"cannot work in {where}: {error.strerror or error}", hint="set WARMSTART_WORK_DIR to a folder with room"
        ) from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def compile_into(target: Target, settings: Settings, stop: Stop, folder: Path) -> Made:
    """Run the pass for `target` with a cache root below `folder`, and pack what it left.

    Raises CompileError, UsageError, TemporaryError (out of time, out of room).
    """
    from warmstart.archive import Compiled, pack

    report = run_pass(target, settings, stop, folder)
    if report.outcome == "nothing-to-compile":
        return Made(report, None)
    facts = Compiled(
        model=target.request.model,
        gpu=target.gpu.name,
        vllm=report.vllm,
        torch=report.torch,
        aot_keys=report.aot_keys,
        outcome=report.outcome,
        ranks=len(report.ranks),
        modules=report.modules,
        graphs=report.graphs,
        counters={
            "compile_milliseconds": round(report.seconds * 1000),
            "gpu_memory_bytes": report.gpu_memory_bytes,
            "kernels": report.kernels,
        },
    )
    packed = pack(folder / "cache", folder / "layers", key=target.key, factors=target.identity.factors, facts=facts)
    return Made(report, packed)


def run_pass(target: Target, settings: Settings, stop: Stop, folder: Path) -> CompileReport:
    """Run the compile pass for `target` with its cache root and its scratch files below `folder`."""
    from warmstart import compiler

    request = compiler.CompileRequest(
        model=target.request.model,
        args=resolve.known_arguments(target.request.args, target.request.vllm),
        env={**habitable(target.environ, folder), **identity.paths(target.environ, target.vllm)},
        gpu=target.gpu,
        gpu_count=target.request.gpu_count,
        cache_root=folder / "cache",
        server_root=target.server_root,
        # An offline server names the model by its snapshot's path, which must then be there, and nothing can stand in for it.
        model_files=None if identity.offline(target.environ) else settings.model_files,
        jobs=settings.jobs,
        deadline_seconds=seconds_left(stop),
        stub=settings.cuda_stub,
        work=folder,
        device=settings.device,
        tuning_bytes=settings.tuning_memory,
    )
    return start(request, stop)


def seconds_left(stop: Stop) -> float:
    """Return the seconds left for the pass, 0 where there is no deadline."""
    left = stop.remaining()
    return 0.0 if left == float("inf") else max(left, 0.001)


def start(request: CompileRequest, stop: Stop) -> CompileReport:
    """Call the compiler: the one seam that the tests of this room replace."""
    from warmstart import compiler

    return compiler.run_pass(request, on_event, stop)


def on_event(event: Mapping[str, Any]) -> None:
    """Log what the pass tells: each phase with its seconds, how many ranks there are, what each one compiled."""
    LOG.info("compile: %s", _told(event), extra={"event": dict(event)})


def _told(event: Mapping[str, Any]) -> str:
    rank = "" if event.get("rank") is None else f"rank {event['rank']}: "
    match event.get("event"):
        case "phase":
            took = f", {event['seconds']:.1f} s ({event['elapsed']:.1f} s so far)" if "elapsed" in event else ""
            return f"{rank}{event['name']}{took}"
        case "world":
            return f"{event['ranks']} rank(s) to compile"
        case "kernels":
            return f"{rank}{event['compiled']} other Triton kernels so far"
        case "report":
            modules = event["modules"]
            done = f"{rank}done: {len(modules)} module(s), {sum(module['entries'] for module in modules)} graphs"
            if "kernels" not in event:
                return done
            ended = f", then {shorten(event['kernels_reason'], 200)}" if event["kernels_reason"] else ""
            return f"{done}, {event['kernels']} other Triton kernels{ended}"
        case _:
            return rank + " ".join(f"{name}={shorten(value, 80)}" for name, value in event.items() if name != "rank")
