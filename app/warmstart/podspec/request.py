"""What a pod spec says its vLLM server will run: the value that everything after it starts from."""

from __future__ import annotations

from collections.abc import Mapping

from warmstart.podspec.options import DEFAULT_VERSION
from warmstart.value import Value


class Workload(Value):
    """The Kubernetes object that a request was read from."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}/{self.namespace}/{self.name}" if self.namespace else f"{self.kind}/{self.name}"


class Unresolved(Value):
    """Something that the spec leaves to the cluster (a Secret's key, a field of the running pod), by name.

    `what` is the env variable or option; `why` says where its value would come from; `compiles` is true where the value
    could change the compiled artifact, so that a key without it is not to be trusted.
    """

    what: str
    why: str
    compiles: bool


class ServeRequest(Value, kw_only=True):
    """One vLLM server, as a pod spec describes it.

    `args` are the arguments after `vllm serve`, in the server's order and spelling, `$(VAR)` and shell words expanded,
    `--config` files merged; the model is not in them. `env` holds the literal values that the container will see.
    `gpus` are the catalog ids that the pod can land on, best first; more than one means one key for each. `gpu_count` is what
    the container asks for, 0 where it asks for none by name. `role` tells the pods of one object apart: "leaderTemplate",
    "prefill". `vllm` is the version by whose options `args` were read. A value that only the running pod knows stands in `args`
    as the spec spells it (`$(POD_IP)`) and is in `unresolved`.
    """

    workload: Workload
    container: str
    image: str
    model: str
    args: tuple[str, ...]
    env: Mapping[str, str]
    gpus: tuple[str, ...]
    gpu_count: int
    unresolved: tuple[Unresolved, ...] = ()
    role: str = ""
    vllm: str = DEFAULT_VERSION
