"""`warmstart prewarm`: the Jobs that are missing for all opted-in workloads of a cluster; once, or for as long as it runs."""

from __future__ import annotations

import dataclasses
import os
import random
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING

from warmstart.errors import (
    EntryInvalid,
    EntryNotFound,
    ModelFilesError,
    SpecError,
    TemporaryError,
    UnsupportedError,
    UsageError,
)
from warmstart.log import Log

if TYPE_CHECKING:
    from collections.abc import Callable

    from warmstart.cluster.api import Api
    from warmstart.cluster.config import PrewarmConfig
    from warmstart.cluster.watching import Watches
    from warmstart.gpus.catalog import Catalog
    from warmstart.podspec.request import ServeRequest
    from warmstart.settings import Settings
    from warmstart.workflow.prewarming import FindKey, InStore, Look, Prewarmer
    from warmstart.workflow.stopping import Stop

LOG = Log("warmstart.prewarm")

_SETTLE_SECONDS = 1.0
_JITTER = 0.1
_LONGEST_SLEEP_SECONDS = 1.0


def main(
    settings: Settings,
    stop: Stop,
    *,
    config: Path | None = None,
    namespaces: tuple[str, ...] | None = None,
    selector: str | None = None,
    resources: tuple[str, ...] | None = None,
    gpus: tuple[str, ...] | None = None,
    concurrency: int | None = None,
    resync_seconds: float | None = None,
    kubeconfig: Path | None = None,
    watch: bool = False,
    dry_run: bool = False,
    told: Callable[[Look], None] | None = None,
) -> Look:
    """Look at the cluster and create the Jobs that are missing; with `watch`, again and again until `stop`.

    Args:
        settings: store, trust, GPU file, Job template.
        stop: whether to end; asked between two looks.
        config: YAML or JSON file, see `cluster.config.PrewarmConfig`; what is given beside it goes over it.
        namespaces: look only here.
        selector: label selector that opts a workload in.
        resources: further kinds of workload, as PLURAL.VERSION.GROUP.
        gpus: catalog ids of workloads about which nothing else tells.
        concurrency: unfinished Jobs at any time, at most.
        resync_seconds: time between two looks where nothing changes.
        kubeconfig: the cluster, where this is not a pod of it.
        watch: stay and follow changes.
        dry_run: let the API server check the Jobs, and create none.
        told: called with each look.

    Returns the last look. Raises `UsageError`, `AccessDenied` with the missing rule; without `watch` `TemporaryError`, too.

    """
    from warmstart.cluster.api import connect
    from warmstart.cluster.config import prewarm_config, read_mapping

    checked = prewarm_config(
        config,
        store=settings.store,
        job_template=read_mapping(settings.job_template) if settings.job_template else None,
        namespaces=namespaces,
        selector=selector,
        resources=resources,
        gpus=gpus,
        concurrency=concurrency,
        resync_seconds=resync_seconds,
    )
    if not checked.store:
        raise UsageError("prewarm needs a store", hint="give --store URL, WARMSTART_STORE, or `store` in the configuration")
    api = connect(kubeconfig)

    def tell(look: Look) -> Look:
        from warmstart.workflow import prewarm_metrics

        LOG.info("looked at the cluster", extra={"counts": look.counts()})
        prewarm_metrics.deliver(look, settings)
        if told is not None:
            told(look)
        return look

    try:
        prewarmer = _prewarmer(api, checked, settings, dry_run=dry_run)
        return _follow(api, prewarmer, checked, stop, tell) if watch else tell(prewarmer.look())
    finally:
        api.close()


def _prewarmer(api: Api, config: PrewarmConfig, settings: Settings, *, dry_run: bool) -> Prewarmer:
    from warmstart.cluster.events import Events
    from warmstart.gpus import load_catalog
    from warmstart.workflow.prewarming import Prewarmer

    catalog = load_catalog(settings.gpu_file)
    instance = os.environ.get("POD_NAME") or socket.gethostname()
    return Prewarmer(
        api,
        config,
        catalog=catalog,
        find_key=_keys(settings, catalog),
        in_store=_asking(config.store, settings),
        events=Events(api, instance=instance),
        dry_run=dry_run,
    )


def _follow(api: Api, prewarmer: Prewarmer, config: PrewarmConfig, stop: Stop, tell: Callable[[Look], Look]) -> Look:
    """Look whenever something changed, and at least every `resync_seconds`; a cluster that does not answer is asked again."""
    from warmstart.cluster.watching import Watches
    from warmstart.workflow.prewarming import Look

    watches = Watches(api, config.watched(), config.namespaces, config.selector)
    look = Look(())
    try:
        while not stop():
            try:
                look = tell(prewarmer.look())
            except TemporaryError as error:
                LOG.warning("looking again later: %s", error)
            if _wait(watches, config.resync_seconds * random.uniform(1 - _JITTER, 1 + _JITTER), stop):  # noqa: S311 - spreads load
                # A rollout changes several objects at once; one look sees them all.
                watches.wait(_SETTLE_SECONDS)
    finally:
        watches.close()
    return look


def _wait(watches: Watches, seconds: float, stop: Stop) -> bool:
    """Wait until something changed (True), the time is over, or the call is to end."""
    ends = time.monotonic() + seconds
    while not stop() and (left := ends - time.monotonic()) > 0:
        if watches.wait(min(left, _LONGEST_SLEEP_SECONDS)):
            return True
    return False


def _keys(settings: Settings, catalog: Catalog) -> FindKey:
    """Return what computes the key of a server on a GPU type, as far as this place can know it."""
    from warmstart import identity
    from warmstart.workflow import resolve

    # What image compiles for which server is for the configuration to say, and for the Job to check.
    lenient = dataclasses.replace(settings, image_mismatch="warn")

    def find_key(request: ServeRequest, gpu: str, code: Path | None) -> str | None:
        if code is None:
            return None
        try:
            return resolve.target(lenient, request, catalog.get(gpu), identity.CodeFingerprint.read(code)).key
        except (ModelFilesError, SpecError, UnsupportedError, TemporaryError) as error:
            # The Job can know: it runs in the server's image, with the server's Secrets.
            LOG.info("the key of %s is not known here: %s", request.workload, error)
            return None

    return find_key


def _asking(url: str, settings: Settings) -> InStore:
    """Return what asks the store for a key. An entry that cannot be used is none."""
    from warmstart.workflow import entries

    store = entries.open_from(dataclasses.replace(settings, store=url, signing_key=None), [])

    def in_store(key: str) -> bool:
        try:
            store.lookup(key)
        except (EntryNotFound, EntryInvalid):
            return False
        return True

    return in_store
