"""`warmstart run`, the init container: install the pod's cache from the store, or compile, publish and install it.

`run` never raises for what goes wrong: the result says what it was, and `cli.py` turns that into exit code 0 unless the call
fails closed. That is the one place where the init container fails open.
"""

from __future__ import annotations

import gc
import time
from typing import TYPE_CHECKING, NamedTuple

from warmstart import report
from warmstart.aside import Aside
from warmstart.errors import EntryInvalid, EntryNotFound, WarmstartError
from warmstart.log import Log
from warmstart.report import Result
from warmstart.workflow.ahead import Ahead

if TYPE_CHECKING:
    from pathlib import Path

    from warmstart.archive import Packed
    from warmstart.settings import Settings
    from warmstart.store import Store
    from warmstart.workflow.resolve import Target
    from warmstart.workflow.stopping import Stop

LOG = Log("warmstart.run")


class Ending(NamedTuple):
    """The result, and the error that it tells of; None where nothing went wrong."""

    result: Result
    failure: BaseException | None


class Progress:
    """What is known so far; a failure half-way is reported with it."""

    def __init__(self, command: str) -> None:
        self.result = Result(command=command, outcome="failed")
        self._begin = time.monotonic()

    def update(self, **known: object) -> None:
        """Add what became known."""
        self.result = self.result.replace(**known)

    def warn(self, *warnings: str) -> None:
        """Add warnings."""
        self.update(warnings=(*self.result.warnings, *(text for text in warnings if text)))

    def end(self, outcome: str, reason: str = "") -> Result:
        """Return the result."""
        self.update(outcome=outcome, reason=reason, seconds=time.monotonic() - self._begin)
        return self.result

    def fail(self, error: BaseException) -> Result:
        """Return the result of a call that an error ended."""
        known = report.failure(self.result.command, error)
        self.update(error=known.error)
        return self.end(known.outcome, known.reason)


def run(settings: Settings, stop: Stop) -> Ending:
    """Do what the init container is for, and tell how it ended. Never raises, short of an exit of the interpreter."""
    progress = Progress("run")
    try:
        result = _run(settings, stop, progress)
        return Ending(result, EntryNotFound(result.reason) if result.outcome == "miss" else None)
    except BaseException as error:
        stop.finish()
        LOG.debug("traceback", exc_info=error)
        return Ending(progress.fail(error), error)
    finally:
        stop.finish()


def _run(settings: Settings, stop: Stop, progress: Progress) -> Result:
    ahead = Ahead(settings)
    try:
        return _find(settings, stop, progress, ahead)
    finally:
        ahead.close()


def _find(settings: Settings, stop: Stop, progress: Progress, ahead: Ahead) -> Result:
    from warmstart.workflow import entries, resolve

    found, catalog = resolve.requests(settings, own_environment=True)
    request = resolve.single(found)
    progress.update(model=request.model)
    if reason := resolve.nothing_to_compile(request):
        return progress.end("nothing-to-compile", reason)
    gpu = resolve.single_gpu(settings, request, catalog)
    progress.update(gpu=gpu.name)
    target = resolve.target(settings, request, gpu, ahead.code())
    progress.result = entries.with_target(progress.result, target)
    root = resolve.cache_root(settings, target.environ)
    progress.update(cache_root=str(root))
    if done := _installed(root, target.key, progress):
        entries.link_kernels(root, target.environ)
        return done
    store = ahead.store()
    try:
        if hit := _from_store(store, target, root, progress):
            return hit
        if settings.on_miss == "skip":
            return progress.end("miss", f"{store.url} has no entry for this key")
        return _compile(settings, store, target, root, stop, progress)
    finally:
        progress.warn(*ahead.notices)


def _installed(root: Path, key: str, progress: Progress) -> Result | None:
    """Tell of an earlier install, which a restarted container finds: the store need not be asked, or be there."""
    from warmstart.archive import find_installed
    from warmstart.workflow import entries

    there = find_installed(root, key)
    if there is None:
        return None
    progress.update(aot_keys=there.aot_keys, raw_bytes=there.raw_bytes)
    if manifest := entries.remembered(root, key):
        progress.result = entries.with_entry(progress.result, manifest)
    return progress.end("hit", "already installed")


def _from_store(store: Store, target: Target, root: Path, progress: Progress) -> Result | None:
    """Install the entry, None where there is none that can be used."""
    from warmstart.workflow import entries

    used: list[Aside[None]] = []
    try:
        # Recorded while the entry is fetched: neither waits for the other.
        entry = entries.install_from(
            store, target.key, root, found=lambda: used.append(Aside(lambda: entries.touch(store, target.key)))
        )
    except EntryNotFound:
        return None
    except EntryInvalid as error:
        progress.warn(f"the entry in the store cannot be used: {error}")
        return None
    entries.remember(root, entry.manifest)
    entries.link_kernels(root, target.environ)
    for mark in used:
        mark.wait()
    progress.result = entries.with_entry(progress.result, entry.manifest)
    return progress.end("hit", "already installed" if entry.installed.already else "")


def _compile(settings: Settings, store: Store, target: Target, root: Path, stop: Stop, progress: Progress) -> Result:
    from warmstart.workflow import compiling, entries

    gc.enable()
    turn = compiling.take_turn(settings, store, target.key, stop)
    if turn.found is not None and (hit := _from_store(store, target, root, progress)):
        return hit
    with compiling.held(turn.claim, settings.claim_ttl), compiling.work_folder(settings) as folder:
        made = compiling.compile_into(target, settings, stop, folder)
        progress.update(compile_seconds=made.report.seconds, gpu_memory_bytes=made.report.gpu_memory_bytes)
        if made.packed is None:
            return progress.end("nothing-to-compile", made.report.reason)
        _install_own(made.packed, root)
        entries.link_kernels(root, target.environ)
        progress.result = entries.with_entry(progress.result, made.packed.manifest)
        try:
            progress.warn(entries.published_warning(entries.publish_to(store, made.packed)))
        except WarmstartError as error:
            # This pod has its cache; that others will have to compile is worth a warning, not a failure.
            progress.warn(f"not published: {error}")
    return progress.end("compiled")


def _install_own(packed: Packed, root: Path) -> None:
    from warmstart.archive import install
    from warmstart.workflow import entries

    install(packed.manifest, entries.local_fetch(packed), root)
    entries.remember(root, packed.manifest)
