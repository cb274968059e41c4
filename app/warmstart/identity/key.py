"""The request key: every factor that decides whether a compiled cache can be used, and their SHA-256.

The key is stricter than vLLM's own, never looser: two requests with one key get one vLLM key, and what vLLM's key is known to
leave out (the GPU in some versions, speculative tokens, LoRA, device numbering) is in it. What changes from pod to pod is not.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from warmstart.errors import EntryInvalid
from warmstart.identity import environment
from warmstart.podspec.options import canonical, compile_factors
from warmstart.value import Value

if TYPE_CHECKING:
    from pathlib import Path

    from warmstart.gpus.profile import GpuProfile
    from warmstart.identity.code import CodeFingerprint
    from warmstart.identity.files import ModelFiles
    from warmstart.podspec.request import ServeRequest

FORMAT = 1
"""Version of the factors' layout. A change to their names or meaning raises it."""

PASS_REVISION = 1
"""Version of the compile pass's contract. Raise it when the pass leaves other artifacts for the same request."""


class Identity(Value):
    """The factors of a request, nested and named, as JSON values."""

    factors: Mapping[str, Any]

    @functools.cached_property
    def key(self) -> str:
        """The request key: SHA-256 over the canonical JSON of the factors, as 64 hex digits."""
        return hashlib.sha256(canonical_json(self.factors)).hexdigest()

    @classmethod
    def from_factors(cls, factors: Mapping[str, Any], key: str) -> Identity:
        """Return the identity that an entry states. Raises EntryInvalid where its factors do not give its key."""
        identity = cls(factors)
        if identity.key != key:
            raise EntryInvalid(f"the factors of entry {key[:12]} give another key, {identity.key[:12]}")
        return identity


def canonical_json(value: object) -> bytes:
    """Return one spelling of a JSON value: sorted names, no spaces, UTF-8. Lone surrogates are escaped, as JSON allows."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=True)
    try:
        return text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def identify(
    request: ServeRequest,
    gpu: GpuProfile,
    model_files: ModelFiles,
    *,
    code: CodeFingerprint,
    image_env: Mapping[str, str] | None = None,
    cache_root: Path | None = None,
) -> Identity:
    """Return the identity of one server on one GPU type.

    Args:
        request: what the server runs; its arguments are canonicalised for the vLLM version in `code`.
        gpu: the GPU type.
        model_files: digests of the files that the server's configuration is made from.
        code: what is installed in the server's image.
        image_env: the environment that the image itself sets, below the container's own.
        cache_root: put into the key where artifacts cannot move between roots; None leaves it out.

    Raises:
        SpecError: the arguments do not parse.
        UnsupportedError: the arguments of this vLLM version are not known.

    """
    version = code.version("vllm")
    factors: dict[str, Any] = {
        "format": FORMAT,
        "pass": PASS_REVISION,
        "code": dict(code.packages),
        "python": dict(code.python),
        "model": model_files.factors(),
        "arguments": compile_factors(request.args, version),
        "environment": environment.factors({**(image_env or {}), **request.env}, version),
        "gpu": gpu.facts(),
        "layout": layout(request, version),
    }
    if cache_root is not None:
        factors["cache_root"] = str(cache_root)
    return Identity(factors)


def layout(request: ServeRequest, version: str) -> dict[str, int]:
    """Return how ranks spread: sizes of the parallel dimensions, and over how many devices each pod numbers its own from 0.

    The device's index is in the generated code. A rank's index is its place among the ranks of its pod, so it follows from
    these figures; CUDA_VISIBLE_DEVICES renames devices below that and has no part in it.
    """
    options = canonical(request.args, version)

    def size(name: str) -> int:
        value = options.get(name)
        return value if isinstance(value, int) and value > 0 else 1

    ranks = size("tensor_parallel_size") * size("pipeline_parallel_size") * size("prefill_context_parallel_size")
    nodes = size("nnodes")
    local = size("data_parallel_size_local") if "data_parallel_size_local" in options else size("data_parallel_size")
    devices = max(1, ranks * local // nodes)
    return {
        "tensor": size("tensor_parallel_size"),
        "pipeline": size("pipeline_parallel_size"),
        "data": size("data_parallel_size"),
        "nodes": nodes,
        "ranks": ranks * size("data_parallel_size"),
        "devices_per_pod": min(devices, request.gpu_count) if request.gpu_count else devices,
    }
