"""One look at a cluster: opted-in workloads, times the GPU types they can land on, less what is there: the Jobs to create.

Level-triggered: every look starts from what is there, so that a look that was cut short, or two at once, do no harm. Job names
are made of what is compiled, and the API server lets a name be taken once.
"""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warmstart import podspec
from warmstart.cluster.events import Events, Notice
from warmstart.cluster.failures import ObjectConflict
from warmstart.cluster.jobs import SELECTED, JobOptions, job_name, pod_specs, render_job
from warmstart.cluster.landing import Pool, fits
from warmstart.cluster.resources import JOBS
from warmstart.cluster.workloads import JobState, claims_of, jobs_by_name, node_pools, opted_in
from warmstart.errors import AccessDenied, TemporaryError, WarmstartError, shorten
from warmstart.log import Log
from warmstart.workflow.job import subject_of
from warmstart.workflow.resolve import image_version, nothing_to_compile

if TYPE_CHECKING:
    from warmstart.cluster.api import Api
    from warmstart.cluster.config import PrewarmConfig
    from warmstart.cluster.jobs import JobSubject
    from warmstart.cluster.resources import Object
    from warmstart.gpus.catalog import Catalog
    from warmstart.podspec.request import ServeRequest

LOG = Log("warmstart.prewarm")

# A request, a GPU's id, and the file with the image's code fingerprint → its key, or None where it cannot be known here.
FindKey = Callable[["ServeRequest", str, Path | None], str | None]
# A key → whether the store has it. Raises TemporaryError where the store does not answer.
InStore = Callable[[str], bool]

# What became of one workload on one GPU type.
PRESENT = "present"
STATES = (
    PRESENT,
    "nothing-to-compile",
    "created",
    "running",
    "suspended",
    "waiting",
    "done",
    "failed",
    "unreadable",
    "unknown-gpu",
    "store-unavailable",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Target:
    """One workload on one GPU type; `gpu`, `job` and `key` are empty where it did not come to that."""

    workload: str
    state: str
    model: str = ""
    gpu: str = ""
    job: str = ""
    key: str = ""
    reason: str = ""


@dataclasses.dataclass(frozen=True)
class Look:
    """What one look came to."""

    targets: tuple[Target, ...]

    def counts(self) -> dict[str, int]:
        """Return how many targets are in each state, all states named."""
        counted = Counter(target.state for target in self.targets)
        return {state: counted.get(state, 0) for state in STATES}

    def document(self) -> dict[str, Any]:
        """Return the look as a JSON object."""
        return {
            "workloads": len({target.workload for target in self.targets}),
            "counts": self.counts(),
            "targets": [dataclasses.asdict(target) for target in self.targets],
        }

    def text(self) -> str:
        """Return the look for people: a line for each target, then the counts."""
        lines = [
            "  ".join(part for part in (one.state, one.workload, one.gpu, one.job, one.reason) if part) for one in self.targets
        ]
        counts = ", ".join(f"{count} {state}" for state, count in self.counts().items() if count)
        return "\n".join([*lines, counts or "no workload has opted in"])


class Prewarmer:
    """Looks at a cluster as often as it is told to. Remembers only what it has said already."""

    def __init__(
        self,
        api: Api,
        config: PrewarmConfig,
        *,
        catalog: Catalog,
        find_key: FindKey,
        in_store: InStore,
        events: Events | None,
        dry_run: bool = False,
    ) -> None:
        self._api = api
        self._config = config
        self._catalog = catalog
        self._find_key = find_key
        self._in_store = in_store
        self._events = events
        self._dry_run = dry_run
        self._said: set[tuple[str, Notice]] = set()

    def look(self) -> Look:
        """Look once, and create what is missing as far as the concurrency allows.

        Raises `AccessDenied` with the missing rule, or `TemporaryError` where the API server does not answer. What is wrong
        with one workload is said on it and in the result, and does not keep the others waiting.
        """
        selector = ",".join(f"{name}={value}" for name, value in SELECTED.items())
        jobs = jobs_by_name(self._api, self._config.namespaces, selector)
        pools = [Pool(pool.name, pool.labels, pool.taints) for pool in self._config.node_pools]
        if self._config.use_nodes:
            pools += node_pools(self._api)
        round_ = _Round(jobs, pools, free=self._config.concurrency - sum(not state.finished for state in jobs.values()))
        targets: list[Target] = []
        for manifest in opted_in(self._api, self._config.watched(), self._config.namespaces, self._config.selector):
            targets += self._workload(manifest, round_)
        return Look(tuple(targets))

    def _workload(self, manifest: Object, round_: _Round) -> Iterator[Target]:
        """Yield what becomes of one workload."""
        name = "/".join((manifest["kind"], manifest["metadata"]["namespace"], manifest["metadata"]["name"]))
        try:
            for request in self._requests(manifest):
                if eager := nothing_to_compile(request):
                    yield Target(workload=name, state="nothing-to-compile", model=request.model, reason=eager)
                    continue
                gpus = self._gpus(request, manifest, round_.pools)
                if not gpus:
                    reason = (
                        "neither its spec nor a node pool says which GPU it lands on; name it in annotation warmstart.dev/gpu"
                    )
                    self._say(manifest, Notice("Warning", "UnknownGpu", "Prewarm", reason))
                    yield Target(workload=name, state="unknown-gpu", model=request.model, reason=reason)
                for gpu in gpus:
                    yield self._target(manifest, name, request, gpu, round_)
        except (AccessDenied, TemporaryError):
            raise
        except WarmstartError as error:
            self._say(manifest, Notice("Warning", "SpecNotUnderstood", "Prewarm", shorten(error, 900)))
            yield Target(workload=name, state="unreadable", reason=shorten(error))

    def _requests(self, manifest: Object) -> list[ServeRequest]:
        namespace = manifest["metadata"]["namespace"]
        claims = [claim for pod in pod_specs(manifest) for claim in claims_of(self._api, namespace, pod)]
        stream = "\n".join(json.dumps(document) for document in (manifest, *claims))
        source = f"{manifest['kind']} {manifest['metadata']['name']}"
        return podspec.load(stream, source=source, catalog=self._catalog, version=image_version)

    def _gpus(self, request: ServeRequest, manifest: Object, pools: list[Pool]) -> tuple[str, ...]:
        """Return what the spec itself names; and, where it leaves the type open, what the pools that it fits on have."""
        if request.gpus and not any(open_.what == "gpu" for open_ in request.unresolved):
            return request.gpus
        pod = subject_of(request, manifest, "any").pod
        found = [gpu.id for pool in pools if fits(pod, pool) for gpu in self._catalog.from_labels(pool.labels)]
        return tuple(dict.fromkeys((*request.gpus, *(found or self._config.gpus))))

    def _target(self, manifest: Object, name: str, request: ServeRequest, gpu: str, round_: _Round) -> Target:
        key = self._find_key(request, gpu, self._config.code_for(request.image)) or ""
        subject = subject_of(request, manifest, gpu, key)
        target = Target(workload=name, state="", model=request.model, gpu=gpu, job=job_name(subject), key=key)
        state, reason = round_.settled.get(subject.identity) or self._settle(manifest, subject, target, request.image, round_)
        # Servers that run the same need one Job between them.
        round_.settled[subject.identity] = (state, reason)
        return dataclasses.replace(target, state=state, reason=reason)

    def _settle(self, manifest: Object, subject: JobSubject, target: Target, image: str, round_: _Round) -> tuple[str, str]:
        """Return state and reason of a target after doing what can be done about it now."""
        try:
            if subject.key and self._in_store(subject.key):
                return PRESENT, ""
        except TemporaryError as error:
            return "store-unavailable", shorten(error)
        job = round_.jobs.get((manifest["metadata"]["namespace"], target.job))
        if job is None and round_.free <= 0:
            return "waiting", f"{self._config.concurrency} Jobs are unfinished already"
        if job is None:
            round_.free -= 1
            return self._create(manifest, subject, target, image)
        if job.state == "failed":
            note = f"Job {target.job} failed ({job.why}); delete it to try again"
            self._say(manifest, Notice("Warning", "PrecompileFailed", "Prewarm", note))
            return job.state, job.why
        if job.state == "done":
            self._say(manifest, Notice("Normal", "PrecompileDone", "Prewarm", f"Job {target.job} compiled for {target.gpu}"))
        return job.state, ""

    def _create(self, manifest: Object, subject: JobSubject, target: Target, image: str) -> tuple[str, str]:
        config = self._config
        options = JobOptions(
            image=config.image_for(image), store=config.store, queue=config.queue, template=config.job_template
        )
        job = render_job(subject, options)
        try:
            self._api.create(JOBS, manifest["metadata"]["namespace"], job, dry_run=self._dry_run)
        except ObjectConflict:  # another pre-warmer was quicker
            return "running", ""
        if not self._dry_run:
            note = f"Job {target.job} compiles {shorten(target.model, 200)} for {target.gpu}"
            self._say(manifest, Notice("Normal", "PrecompileStarted", "Prewarm", note))
        return "created", "dry run" if self._dry_run else ""

    def _say(self, manifest: Object, notice: Notice) -> None:
        """Write an Event, once in this process. One that cannot be written must not keep a cache from being made."""
        said = (manifest["metadata"]["uid"], notice)
        if self._events is None or self._dry_run or said in self._said:
            return
        self._said.add(said)
        try:
            self._events.say(manifest, notice)
        except WarmstartError as error:
            LOG.warning("cannot write an Event on %s: %s", manifest["metadata"]["name"], error)


@dataclasses.dataclass
class _Round:
    """What one look knows and shares between its workloads."""

    jobs: dict[tuple[str, str], JobState]
    pools: list[Pool]
    free: int
    settled: dict[str, tuple[str, str]] = dataclasses.field(default_factory=dict)
