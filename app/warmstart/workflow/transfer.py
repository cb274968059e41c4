"""`warmstart pull` and `warmstart push`: install and publish an entry by hand."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import TYPE_CHECKING

from warmstart.errors import CompileError, EntryNotFound, UsageError, shorten
from warmstart.workflow import compiling, entries, resolve
from warmstart.workflow.run import Progress

if TYPE_CHECKING:
    from warmstart.report import Result
    from warmstart.settings import Settings
    from warmstart.store import Store
    from warmstart.workflow.resolve import Target
    from warmstart.workflow.stopping import Stop

_KEY = re.compile(r"[0-9a-f]{8,64}")
_AOT = "torch_compile_cache/torch_aot_compile"
_SETTLE_SECONDS = 2.0


def pull(settings: Settings, stop: Stop, key: str | None) -> Result:
    """Install the entry of a key, or of the pod spec's server. Raises EntryNotFound, EntryInvalid, UsageError."""
    del stop
    progress = Progress("pull")
    notices: list[str] = []
    store = entries.open_from(settings, notices)
    if key is not None:
        full, environ = full_key(store, key), {}
        if settings.cache_root is None:
            raise UsageError("it is not said where to install", hint="give --cache-root or WARMSTART_CACHE_ROOT")
        root = settings.cache_root.absolute()
    else:
        target = _target(settings)
        full, root, environ = target.key, resolve.cache_root(settings, target.environ), dict(target.environ)
        progress.result = entries.with_target(progress.result, target)
    entry = entries.install_from(store, full, root)
    entries.remember(root, entry.manifest)
    entries.link_kernels(root, environ)
    entries.touch(store, full)
    progress.result = entries.with_entry(progress.result, entry.manifest)
    progress.update(cache_root=str(root))
    progress.warn(*notices)
    return progress.end("hit", "already installed" if entry.installed.already else "")


def push(settings: Settings, stop: Stop, aot_keys: tuple[str, ...], *, replace: bool = False) -> Result:
    """Publish the cache below the cache root under the key of the pod spec's server.

    `aot_keys` are the artifacts that belong to it; all that are there where none is named. With `replace` it takes the place of
    another entry for the key, which is removed once everything of this one is stored. Raises CompileError for none.
    """
    from warmstart.archive import Compiled, pack

    del stop
    progress = Progress("push")
    notices: list[str] = []
    store = entries.open_from(settings, notices)
    target = _target(settings)
    progress.result = entries.with_target(progress.result, target)
    root = resolve.cache_root(settings, target.environ)
    keys = aot_keys or artifacts(root)
    if not keys:
        raise CompileError(f"{root} holds no compiled artifact", hint="start the server once, with this cache root")
    facts = Compiled(
        model=target.request.model,
        gpu=target.gpu.name,
        vllm=target.vllm,
        torch=target.torch,
        aot_keys=keys,
        outcome="captured",
        ranks=len({folder.name for key in keys for folder in (root / _AOT / key).glob("rank_*")}),
        modules=sum(1 for key in keys for _ in (root / _AOT / key).glob("rank_*/model")),
        graphs=0,
    )
    with compiling.work_folder(settings) as folder:
        packed = pack(
            root, folder, key=target.key, factors=target.identity.factors, facts=facts, settle_seconds=_SETTLE_SECONDS
        )
        published = entries.publish_to(store, packed)
        replaced = replace and published.outcome == "beside"
        if replaced:
            store.remove(target.key)
            published = entries.publish_to(store, packed)
    progress.result = dataclasses.replace(entries.with_entry(progress.result, packed.manifest), cache_root=str(root))
    progress.warn(entries.published_warning(published), *notices)
    present = "an equal entry was there" if published.outcome == "present" else ""
    return progress.end("published", "in the place of another entry" if replaced else present)


def artifacts(root: Path) -> tuple[str, ...]:
    """Return the names of the AOT artifacts below a cache root that hold a model."""
    return tuple(sorted({path.parent.parent.name for path in (root / _AOT).glob("*/rank_*/model")}))


def full_key(store: Store, key: str) -> str:
    """Return the full key that `key` begins. Raises UsageError where it is no key or begins several, EntryNotFound for none."""
    if not _KEY.fullmatch(key):
        raise UsageError(f"{shorten(key, 80)!r} is no key", hint="a key has 64 hex digits; 8 or more of its first ones will do")
    if len(key) == 64:
        return key
    found = sorted({entry.key for entry in store.entries() if entry.key.startswith(key)})
    if not found:
        raise EntryNotFound(f"{store.url} has no entry whose key begins with {key}")
    if len(found) > 1:
        raise UsageError(f"{key} begins {len(found)} keys: {', '.join(one[:16] for one in found[:8])}", hint="give more digits")
    return found[0]


def _target(settings: Settings) -> Target:
    found, catalog = resolve.requests(settings, own_environment=not settings.pod_spec and bool(settings.pod_name))
    request = resolve.single(found)
    gpu = resolve.single_gpu(settings, request, catalog)
    return resolve.target(settings, request, gpu, resolve.code(settings))
