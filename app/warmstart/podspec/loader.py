"""A Kubernetes object's text → the vLLM servers that it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from warmstart.errors import SpecError, shorten
from warmstart.pattern import pattern
from warmstart.podspec import accelerators, configfile, documents, environment, kubelet, options
from warmstart.podspec.command import Invocation, interpret, mentions_vllm
from warmstart.podspec.environment import Environment
from warmstart.podspec.neutral import NEUTRAL
from warmstart.podspec.objects import Objects
from warmstart.podspec.plain import Plain, mappings, text, texts
from warmstart.podspec.request import ServeRequest
from warmstart.podspec.unknowns import refuse_marks
from warmstart.podspec.workloads import PodTemplate, pod_templates
from warmstart.value import Value

if TYPE_CHECKING:
    from warmstart.gpus.catalog import Catalog

_OFFICIAL_IMAGE = "vllm-openai"
_MOST_WORDS = 5000
_LONE_SURROGATE = pattern(
    r"[\ud800-\udfff]|\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2}"
)
"""As it stands or as JSON escapes it: such text can neither be hashed nor handed to a program."""


class _Server(Value):
    """A container that starts vLLM."""

    name: str
    image: str
    container: Plain
    where: str
    invocation: Invocation


def load(
    text: str,
    *,
    source: str,
    container: str | None = None,
    env: Mapping[str, str] | None = None,
    gpu: str | None = None,
    catalog: Catalog | None = None,
    files: Mapping[str, str] | None = None,
    version: str | Callable[[str], str] = options.DEFAULT_VERSION,
) -> list[ServeRequest]:
    """Return one request for each pod of a spec that runs a vLLM server, in the spec's order; at least one.

    `text` is YAML or JSON: one object, a List, or several documents; ConfigMaps, Secrets and resource claims among them are
    looked up. `source` names the text in errors. `container` names the vLLM container where several could be meant. `env` is
    the environment of a container of the same pod, where this runs in one: it answers for what comes from ConfigMaps and
    Secrets, and says that `--config` files lie on this disk. `gpu` names GPU types, separated by commas, and wins over the
    spec. `files` maps container paths to the text of files that the spec does not hold. `version` is the vLLM version whose
    options hold, or a function that tells it of an image.

    What the spec leaves to the cluster is in each request's `unresolved`. Nothing is guessed.

    Raises SpecError: the text is no Kubernetes object, no container or several run vLLM, or the command cannot be understood.
    UnknownGpuError: a GPU name or label that the catalog does not hold. UnsupportedError: a GPU of another vendor, a vLLM
    version without a table of options.
    """
    refuse_marks(text, source)
    if (not text.isascii() or "\\u" in text) and _LONE_SURROGATE.search(text):
        raise SpecError(f"{source} holds half of a character (a lone surrogate)")
    for name, value in (env or {}).items():
        refuse_marks(value, f"the variable {name} of this environment")
    stream = documents.read(text, source)
    objects = Objects(stream)
    pods = [pod for document in stream for pod in pod_templates(document)]
    if not pods:
        raise _no_pods(stream, source)
    if catalog is None:
        from warmstart.gpus import load_catalog

        catalog = load_catalog()
    failures: list[SpecError] = []
    requests: list[ServeRequest] = []
    for pod in pods:
        server = _server(pod, objects, env, container, failures)
        if server is not None:
            vllm = version if isinstance(version, str) else version(server.image)
            requests.append(_request(pod, server, objects, catalog, env=env, gpu=gpu, files=files, version=vllm))
    if not requests:
        raise failures[0] if failures else _no_server(pods, source, container)
    return requests


def _no_pods(stream: Sequence[Plain], source: str) -> SpecError:
    kinds = ", ".join(dict.fromkeys(shorten(document["kind"], 40) for document in stream))
    hint = "give a Pod, or an object with a pod template"
    if any(document["kind"] in ("InferenceService", "LLMInferenceService") for document in stream):
        hint = "KServe takes its containers from a runtime in the cluster: give the Deployment or Pod that it made"
    return SpecError(f"{source} holds no pod template, only {shorten(kinds, 200)}", hint=hint)


def _no_server(pods: Sequence[PodTemplate], source: str, wanted: str | None) -> SpecError:
    containers = [f"{shorten(name, 60)} ({shorten(image, 80)})" for pod in pods for name, image, _, _ in _containers(pod)]
    names = shorten(", ".join(containers), 300)
    if wanted is not None:
        return SpecError(f"{source} has no container named {shorten(wanted, 60)}", hint=f"its containers: {names}")
    return SpecError(
        f"{source} has no vLLM container among {names}",
        hint="a vLLM container runs `vllm serve`, vllm.entrypoints.openai.api_server, or the vllm-openai image with args only",
    )


def _containers(pod: PodTemplate) -> Iterator[tuple[str, str, Plain, str]]:
    """Yield name, image, container and place of every container that stays: sidecars among the init containers too."""
    for key in ("containers", "initContainers"):
        for position, container in enumerate(mappings(pod.spec, key, pod.where)):
            if key == "initContainers" and container.get("restartPolicy") != "Always":
                continue
            where = f"{pod.where}.{key}[{position}]"
            name = shorten(text(container, "name", where) or str(position), 63)
            yield name, text(container, "image", where), container, f"{pod.workload} container {name!r}"


def _server(
    pod: PodTemplate, objects: Objects, env: Mapping[str, str] | None, wanted: str | None, failures: list[SpecError]
) -> _Server | None:
    """Return the pod's vLLM container; None where it has none. What could not be understood is added to `failures`."""
    found: list[_Server] = []
    for name, image, container, where in _containers(pod):
        if wanted is not None and name != wanted:
            continue
        try:
            invocation = _invocation(pod, container, image, objects, env, where)
        except SpecError as error:
            failures.append(
                SpecError(f"{where}: {error.message}" if where not in error.message else error.message, hint=error.hint)
            )
            continue
        if invocation is not None:
            found.append(_Server(name, image, container, where, invocation))
        elif wanted is not None:
            failures.append(SpecError(f"{where} does not run vLLM", hint="its command must be one that starts a vLLM server"))
    if len(found) > 1:
        names = shorten(", ".join(server.name for server in found), 300)
        raise SpecError(f"{pod.workload} has several vLLM containers: {names}", hint="name one with --container")
    return found[0] if found else None


def _invocation(
    pod: PodTemplate, container: Plain, image: str, objects: Objects, own: Mapping[str, str] | None, where: str
) -> Invocation | None:
    command, args = texts(container, "command", where), texts(container, "args", where)
    repository = PurePosixPath(image.partition("@")[0]).name.partition(":")[0]
    if not command and pod.workload.kind == "LLMInferenceService" and container.get("name") == "main":
        raise SpecError(
            f"{where} has no command: KServe adds its own, a script that asks the running vLLM for its version",
            hint="give the Deployment that KServe made, or set the command",
        )
    if not command and "vllm" not in repository:
        return None
    if command and not mentions_vllm([*command, *args, repository]):
        return None
    surroundings = environment.resolve(container, pod, objects, own, where)
    if len(command) + len(args) > _MOST_WORDS:
        raise SpecError(f"{where} has more than {_MOST_WORDS} words of command and args")
    words = [kubelet.expand(word, surroundings.variables) for word in (*command, *args)]
    if command:
        return interpret(words, surroundings)
    if repository != _OFFICIAL_IMAGE:
        surroundings.note("entrypoint", f"image {shorten(image, 100)} is taken to start `vllm serve`", compiles=False)
    return Invocation(True, tuple(words), surroundings)


def _request(
    pod: PodTemplate,
    server: _Server,
    objects: Objects,
    catalog: Catalog,
    *,
    env: Mapping[str, str] | None,
    gpu: str | None,
    files: Mapping[str, str] | None,
    version: str,
) -> ServeRequest:
    surroundings, serve = server.invocation.environment, server.invocation.serve
    where = server.where
    lookup = configfile.Files(server.container, pod, objects, files, on_disk=env is not None, where=where)
    try:
        words = configfile.merge(server.invocation.args, lookup, serve=serve, version=version)
        model, args = options.split(words, version, serve=serve)
    except SpecError as error:
        # Marks of values that are not known may stand in the message; show what the spec has.
        raise SpecError(f"{where}: {surroundings.unknowns.reveal(error.message)}", hint=error.hint) from None
    model = _known_model(model or options.table(version).default_model, surroundings, where)
    _note_words(args, surroundings, version)
    literal = surroundings.literal()
    hardware = accelerators.resolve(pod, server.container, objects, catalog, gpu, where)
    return ServeRequest(
        workload=pod.workload,
        container=server.name,
        image=server.image,
        model=model,
        args=tuple(surroundings.unknowns.reveal(word) for word in args),
        env=literal,
        gpus=hardware.gpus,
        gpu_count=hardware.number,
        unresolved=(*surroundings.notes, *hardware.notes),
        role=pod.role,
        vllm=version,
    )


def _known_model(model: str, surroundings: Environment, where: str) -> str:
    missing = surroundings.unknowns.within(model)
    if missing:
        raise SpecError(
            f"{where}: the model is {surroundings.unknowns.reveal(model)}, and {missing[0].why}", hint="write the model out"
        )
    if not model or "\n" in model:
        raise SpecError(f"{where}: the model is {shorten(model, 60)!r}")
    return model


def _note_words(args: Sequence[str], surroundings: Environment, version: str) -> None:
    """Note every argument whose value is not known, under the option that it belongs to."""
    option = ""
    for word in args:
        if word.startswith("-"):
            option = word.partition("=")[0]
        missing = surroundings.unknowns.within(word)
        if not missing:
            continue
        destination = options.destination(option, version) if option else None
        spelled = surroundings.unknowns.reveal(option or word)
        surroundings.note(spelled, missing[0].why, compiles=destination not in NEUTRAL)
