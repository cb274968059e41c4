"""From settings to what is to be compiled: the pod spec, its server, the GPU type, the key, and where the cache lies."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warmstart import identity
from warmstart.errors import SpecError, UnknownGpuError, UsageError, shorten
from warmstart.gpus.profile import GpuProfile
from warmstart.log import Log
from warmstart.pattern import pattern
from warmstart.podspec.neutral import NEUTRAL
from warmstart.podspec.options import canonical, destination, known, table
from warmstart.value import Value

if TYPE_CHECKING:
    from warmstart.gpus.catalog import Catalog
    from warmstart.podspec.request import ServeRequest
    from warmstart.settings import Settings

LOG = Log("warmstart.workflow")

_MOST_SPEC_BYTES = 16 << 20
_TAG_VERSION = pattern(r":v?(\d+\.\d+\.\d+)(?:$|[-.+@\w])")
# What of this process's environment is its own, not the image's: settings and credentials of the store, what Kubernetes and
# a shell put there, and HOME: the image of this project sets its own, and the user may be another.
_OWN_PREFIXES = ("WARMSTART_", "KUBERNETES_", "AWS_", "GOOGLE_", "AZURE_")
_OWN_NAMES = frozenset({"HOME", "HOSTNAME", "PWD", "OLDPWD", "SHLVL", "USER", "LOGNAME", "TERM", "TMPDIR", "PYTHONPATH", "_"})
_SERVICE = pattern(r".*_(SERVICE_HOST|SERVICE_PORT\w*|PORT(_\d+_\w+)?)")
_MARK = pattern(r"\$\([^)]+\)")
_TRUE = frozenset({"1", "true", "yes", "on"})


class GpuMismatch(UnknownGpuError):
    """The GPU in sight is not what the catalog says of the type asked for: to `run`, a miss."""

    outcome = "miss"


class Target(Value, kw_only=True):
    """One server on one GPU type. `environ` is what the server's process will see, as far as it is known here.

    `server_root` is where the server keeps its cache, None where its vLLM finds a cache that was made below another root.
    """

    request: ServeRequest
    gpu: GpuProfile
    identity: identity.Identity
    environ: Mapping[str, str]
    vllm: str
    torch: str
    server_root: Path | None = None
    warnings: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The request key."""
        return self.identity.key


def read_spec(settings: Settings) -> tuple[str, str]:
    """Return the pod spec's text and what to call it: from the settings, or the own pod from the API server."""
    if settings.pod_spec:
        return _spec_text(settings.pod_spec)
    if settings.pod_name and settings.pod_namespace:
        import json

        from warmstart.cluster.pods import own_pod

        pod = own_pod(settings.pod_namespace, settings.pod_name)
        return json.dumps(pod), f"pod {settings.pod_namespace}/{settings.pod_name}"
    raise UsageError(
        "no pod spec is given",
        hint="use -f FILE or -f -; in a pod set WARMSTART_POD_NAME and WARMSTART_POD_NAMESPACE, or WARMSTART_POD_SPEC",
    )


def _spec_text(where: str) -> tuple[str, str]:
    if where.lstrip().startswith("{") or "\n" in where:
        return where, "WARMSTART_POD_SPEC"
    name = "standard input" if where == "-" else where
    try:
        if where == "-":
            content = sys.stdin.buffer.read(_MOST_SPEC_BYTES + 1)
        else:
            with Path(where).open("rb") as file:
                content = file.read(_MOST_SPEC_BYTES + 1)
    except OSError as error:
        raise SpecError(f"cannot read {name}: {error.strerror or error}") from error
    if len(content) > _MOST_SPEC_BYTES:
        raise SpecError(f"{name} is larger than any pod spec ({_MOST_SPEC_BYTES} bytes)")
    try:
        return content.decode("utf-8-sig"), name
    except UnicodeDecodeError as error:
        raise SpecError(f"{name} is not UTF-8 text") from error


def requests(settings: Settings, *, own_environment: bool) -> tuple[list[ServeRequest], Catalog]:
    """Return the servers of the pod spec, and the GPU catalog that their types are named in.

    `own_environment` says that this process was given the references of the server's container to Secrets and ConfigMaps.
    """
    from warmstart import podspec
    from warmstart.gpus import load_catalog

    text, source = read_spec(settings)
    catalog = load_catalog(settings.gpu_file)
    found = podspec.load(
        text,
        source=source,
        container=settings.container,
        env=dict(os.environ) if own_environment else None,
        gpu=settings.gpu,
        catalog=catalog,
        version=known(_server_version(settings)),
    )
    return found, catalog


def _server_version(settings: Settings) -> str:
    """Return the version of the server's vLLM, by whose options its arguments are read; empty where it is not known here."""
    if settings.code_file:
        return identity.CodeFingerprint.read(settings.code_file).packages.get("vllm", "").partition(" ")[0]
    return identity.installed_version("vllm")


def image_version(image: str) -> str:
    """Return the vLLM version by whose options to read the arguments of a server with this image, as far as its tag tells."""
    return known(_tag_version(image))


def code(settings: Settings) -> identity.CodeFingerprint:
    """Return the fingerprint of the server's code: of what is installed here, or of the document that the settings name."""
    return identity.CodeFingerprint.read(settings.code_file) if settings.code_file else identity.fingerprint()


def target(settings: Settings, request: ServeRequest, gpu: GpuProfile, fingerprint: identity.CodeFingerprint) -> Target:
    """Return one server on one GPU type, with its key. Raises UsageError and its kinds for what cannot be known or used."""
    vllm = fingerprint.version("vllm")
    fields = _fields(request)
    warnings = [*check_image(request, vllm, settings.image_mismatch), *identity.hazards(request.env, fields, vllm)]
    refuse_unknown(request, vllm)
    environ = without_instance({**image_environment(), **request.env}, settings)
    request = request.replace(env=without_instance(request.env, settings))
    files = identity.request_files(request, folder=settings.model_files, env=environ)
    server_root = None if _whole_artifacts(environ, vllm) else cache_root(settings, environ)
    found = identity.identify(request, gpu, files, code=fingerprint, image_env=environ, cache_root=server_root)
    torch = fingerprint.packages.get("torch", "").partition(" ")[0]
    for warning in warnings:
        LOG.warning("%s", warning)
    return Target(
        request=request,
        gpu=gpu,
        identity=found,
        environ=environ,
        vllm=vllm,
        torch=torch,
        server_root=server_root,
        warnings=tuple(warnings),
    )


def _whole_artifacts(environ: Mapping[str, str], vllm: str) -> bool:
    """Return whether the server's artifacts hold their graphs; else vLLM finds them by absolute paths."""
    given = environ.get("VLLM_USE_MEGA_AOT_ARTIFACT")
    return table(vllm).whole_artifacts if given is None else given == "1"


def single(found: list[ServeRequest]) -> ServeRequest:
    """Return the one server that a pod runs. Raises SpecError where the spec has several."""
    if len(found) > 1:
        raise SpecError(
            f"the spec has {len(found)} vLLM servers: {', '.join(map(_name, found))}", hint="name one with --container"
        )
    return found[0]


def single_gpu(settings: Settings, request: ServeRequest, catalog: Catalog) -> GpuProfile:
    """Return the GPU type of the own pod: as asked for, else the device in sight, else the only one that the spec allows.

    Raises UnknownGpuError where none or several are left, or the device in sight is not what the catalog says.
    """
    live = device_in_sight()
    if settings.gpu or live is None:
        if len(request.gpus) == 1:
            return _checked(catalog.get(request.gpus[0]), live)
        choice = (
            f"several GPU types are possible: {', '.join(request.gpus)}" if request.gpus else "the pod spec names no GPU type"
        )
        raise UnknownGpuError(choice, hint="name it with --gpu or WARMSTART_GPU; `warmstart gpus` lists the spellings")
    return _checked(catalog.get(live.name), live)


def device_in_sight() -> GpuProfile | None:
    """Return the profile of the first GPU of this container, or None where it has none."""
    if not Path("/dev/nvidiactl").exists() or os.environ.get("CUDA_VISIBLE_DEVICES") == "":
        return None
    from warmstart.gpus import describe

    try:
        return describe()
    except UsageError as error:
        LOG.info("a GPU device is here but cannot be asked: %s", error)
        return None


def cache_root(settings: Settings, environ: Mapping[str, str]) -> Path:
    """Return VLLM_CACHE_ROOT as the server will see it: from the settings, its environment, or vLLM's own default.

    Raises UsageError where that cannot be known: a cache in another folder than the server's is worth nothing.
    """
    if settings.cache_root is not None:
        return settings.cache_root.absolute()
    given = environ.get("VLLM_CACHE_ROOT")
    root = given or str(Path(environ.get("XDG_CACHE_HOME") or "~/.cache") / "vllm")
    if root == "~" or root.startswith("~/"):
        if not environ.get("HOME"):
            raise UsageError(
                "it is not known where the server keeps its cache: its env sets neither VLLM_CACHE_ROOT nor HOME",
                hint="set VLLM_CACHE_ROOT on the server to a volume that both containers mount, or give --cache-root",
            )
        root = environ["HOME"].rstrip("/") + root[1:]
    if not root.startswith("/"):
        raise UsageError(
            f"the server's cache root {shorten(root, 120)} is not an absolute path", hint="set VLLM_CACHE_ROOT to one"
        )
    return Path(root)


def nothing_to_compile(request: ServeRequest) -> str:
    """Return why the server will not use a compile cache; empty where it will."""
    options = canonical(request.args, request.vllm)
    compilation = options.get("compilation_config")
    mode = compilation.get("mode") if isinstance(compilation, dict) else None
    if options.get("enforce_eager") is True:
        return "the server runs with --enforce-eager"
    if str(options.get("optimization_level", "")) == "0" and mode is None:
        return "the server runs with -O0"
    if mode is not None and str(mode).upper() in {"0", "NONE"}:
        return "the server's compilation mode is NONE"
    if request.env.get("VLLM_DISABLE_COMPILE_CACHE", "").strip().lower() in _TRUE:
        return "the server runs with VLLM_DISABLE_COMPILE_CACHE"
    return ""


def check_image(request: ServeRequest, vllm: str, policy: str) -> list[str]:
    """Return a warning where the server's image names another vLLM version; raise UsageError where policy is to refuse."""
    named = _tag_version(request.image)
    if not named or vllm.partition("+")[0].startswith(named):
        return []
    message = f"the server's image {shorten(request.image.partition('@')[0], 120)} holds vLLM {named}, this one {vllm}"
    if policy == "refuse":
        raise UsageError(message, hint="use one image for both, or set WARMSTART_IMAGE_MISMATCH=warn")
    return [message]


def _tag_version(image: str) -> str:
    """Return the vLLM version that an image's tag names, empty where it names none."""
    image = image.partition("@")[0]
    match = _TAG_VERSION.search(image) if "vllm" in image.rpartition(":")[0].rpartition("/")[2] else None
    return match[1] if match else ""


def refuse_unknown(request: ServeRequest, vllm: str) -> None:
    """Raise SpecError where something that belongs in the key is not known: a key without it would fit servers that differ."""
    hashed = table(vllm).hashed
    for item in request.unresolved:
        compiles = item.compiles or item.what in hashed
        if compiles and item.what != "gpu" and (item.what.startswith("-") or identity.counts(item.what, vllm)):
            raise SpecError(
                f"{item.what} is not known here: {item.why}",
                hint="give this container the same env as the server, or write it out",
            )


def known_arguments(args: Sequence[str], vllm: str) -> tuple[str, ...]:
    """Return a server's arguments without the options whose values only its running pod knows (`--port=$(PORT)`).

    vLLM's parser would refuse them as they stand. What is left out decides nothing: `refuse_unknown` has seen to that.
    """
    kept: list[str] = []
    words = list(args)
    while words:
        option = [words.pop(0)]
        if option[0].startswith("-") and "=" not in option[0] and words and not words[0].startswith("-"):
            option.append(words.pop(0))
        if not (any(_MARK.search(word) for word in option) and destination(option[0], vllm) in NEUTRAL):
            kept += option
    return tuple(kept)


def without_instance(env: Mapping[str, str], settings: Settings) -> dict[str, str]:
    """Return an environment without variables that hold the name of the own pod: they are other in every pod."""
    own = {os.uname().nodename, settings.pod_name} - {None, ""}
    return {name: value for name, value in env.items() if value not in own}


def image_environment() -> dict[str, str]:
    """Return what the server's image sets, as this process, which runs in the same image, sees it in its own variables.

    All of it, but for what is this process's own: any variable may reach vLLM's key. (torch reads CXX into it, for one, and an
    image that sets CXX would never have hit when only variables with telling names were handed on.)
    """
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(_OWN_PREFIXES) and name not in _OWN_NAMES and not _SERVICE.fullmatch(name)
    }


def _fields(request: ServeRequest) -> dict[str, str]:
    return {item.what: item.why for item in request.unresolved if "the pod's" in item.why}


def _checked(profile: GpuProfile, live: GpuProfile | None) -> GpuProfile:
    if live is not None:
        from warmstart.gpus import compare

        differing = compare(profile, live)
        if differing:
            facts = ", ".join(f"{name} {getattr(live, name)} instead of {getattr(profile, name)}" for name in differing)
            raise GpuMismatch(
                f"the GPU here is not what the catalog says of {profile.id}: {facts}",
                hint="name the right type, or describe this one with `warmstart gpus describe` and --gpu-file",
            )
    return profile


def _name(request: ServeRequest) -> str:
    return f"{request.workload} {request.container}" + (f" ({request.role})" if request.role else "")


def describe_target(found: Target) -> dict[str, Any]:
    """Return a target as a JSON object, as `plan` shows it."""
    request = found.request
    return {
        "workload": str(request.workload),
        "container": request.container,
        "role": request.role,
        "image": request.image,
        "model": request.model,
        "args": list(request.args),
        "gpu": found.gpu.id,
        "gpu_name": found.gpu.name,
        "gpu_count": request.gpu_count,
        "layout": dict(found.identity.factors["layout"]),
        "vllm": found.vllm,
        "request_key": found.key,
    }
