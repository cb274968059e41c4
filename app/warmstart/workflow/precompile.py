"""`warmstart precompile`: compile and publish for a pod spec, for every server in it and every GPU type asked for."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from warmstart.errors import EntryInvalid, EntryNotFound, UnknownGpuError
from warmstart.log import Log
from warmstart.workflow import compiling, entries, resolve
from warmstart.workflow.run import Ending, Progress

if TYPE_CHECKING:
    from warmstart import identity
    from warmstart.gpus.profile import GpuProfile
    from warmstart.podspec.request import ServeRequest
    from warmstart.report import Result
    from warmstart.settings import Settings
    from warmstart.store import Store
    from warmstart.workflow.stopping import Stop

LOG = Log("warmstart.precompile")


def precompile(settings: Settings, stop: Stop) -> list[Ending]:
    """Compile what the store does not have yet; one ending for each server and GPU type, in the spec's order.

    One that fails does not keep the others from being compiled. Raises what makes all of them impossible: a spec that
    cannot be read, a store that cannot be opened, being stopped.
    """
    found, catalog = resolve.requests(settings, own_environment="KUBERNETES_SERVICE_HOST" in os.environ)
    fingerprint = resolve.code(settings)
    notices: list[str] = []
    store = entries.open_from(settings, notices)
    endings: list[Ending] = []
    for request in found:
        if not request.gpus:
            raise UnknownGpuError(
                f"{request.workload} does not say which GPU it runs on", hint="give --gpu NAME; `warmstart gpus` lists them"
            )
        endings += [_one(settings, store, request, catalog.get(gpu), fingerprint, stop) for gpu in request.gpus]
    return endings


def _one(
    settings: Settings,
    store: Store,
    request: ServeRequest,
    gpu: GpuProfile,
    fingerprint: identity.CodeFingerprint,
    stop: Stop,
) -> Ending:
    progress = Progress("precompile")
    progress.update(model=request.model, gpu=gpu.name)
    try:
        return Ending(_compile(settings, store, request, gpu, fingerprint, stop, progress), None)
    except Exception as error:
        LOG.debug("traceback", exc_info=error)
        return Ending(progress.fail(error), error)


def _compile(
    settings: Settings,
    store: Store,
    request: ServeRequest,
    gpu: GpuProfile,
    fingerprint: identity.CodeFingerprint,
    stop: Stop,
    progress: Progress,
) -> Result:
    if reason := resolve.nothing_to_compile(request):
        return progress.end("nothing-to-compile", reason)
    target = resolve.target(settings, request, gpu, fingerprint)
    progress.result = entries.with_target(progress.result, target)
    if hit := _there(store, target.key, progress):
        return hit
    turn = compiling.take_turn(settings, store, target.key, stop)
    if turn.found is not None and (hit := _there(store, target.key, progress)):
        return hit
    with compiling.held(turn.claim, settings.claim_ttl), compiling.work_folder(settings) as folder:
        made = compiling.compile_into(target, settings, stop, folder)
        progress.update(compile_seconds=made.report.seconds, gpu_memory_bytes=made.report.gpu_memory_bytes)
        if made.packed is None:
            return progress.end("nothing-to-compile", made.report.reason)
        progress.result = entries.with_entry(progress.result, made.packed.manifest)
        if warning := entries.published_warning(entries.publish_to(store, made.packed)):
            progress.warn(warning)
    return progress.end("compiled")


def _there(store: Store, key: str, progress: Progress) -> Result | None:
    """Tell of an entry that is there and can be used."""
    from warmstart.archive import parse_manifest

    try:
        manifest = parse_manifest(store.lookup(key).manifest, key=key)
        entries.check_factors(manifest)
    except EntryNotFound:
        return None
    except EntryInvalid as error:
        progress.warn(f"the entry in the store cannot be used: {error}")
        return None
    entries.touch(store, key)
    progress.result = entries.with_entry(progress.result, manifest)
    return progress.end("hit", "the store has it already")
