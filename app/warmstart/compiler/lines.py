"""The vLLM versions that this release compiles for. A version that is not here is refused by name."""

from __future__ import annotations

import dataclasses
import importlib.metadata

from warmstart.errors import UnsupportedError


@dataclasses.dataclass(frozen=True)
class Line:
    """One line of vLLM releases: the torch that it pairs with, and where it differs from the newest line.

    `arg_parser` is the module that makes the parser of `vllm serve`. `absent` are names that seams replace in newer lines and
    that this one has not got: there is nothing to stand in for.
    """

    vllm: str
    torch: str
    arg_parser: str
    absent: frozenset[str] = frozenset()


_SHALLOW_COPY = "vllm.model_executor.kernels.linear.mixed_precision.MPLinearKernel._shallow_copy"

LINES = (
    Line(vllm="0.33", torch="2.14", arg_parser="vllm.entrypoints.common.cli_args"),
    # A kernel's parameter goes through the layout transform itself, not a copy of it.
    Line(vllm="0.32", torch="2.13", arg_parser="vllm.entrypoints.launchers.cli_args", absent=frozenset({_SHALLOW_COPY})),
)


def installed() -> Line:
    """Return the line of the vLLM installed here.

    Raises:
        UnsupportedError: vLLM is not installed, or it is of a version (or beside a torch) that the seams were not made for.

    """
    supported = ", ".join(f"{line.vllm}.x with torch {line.torch}.x" for line in LINES)
    try:
        vllm, torch = importlib.metadata.version("vllm"), importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError as error:
        raise UnsupportedError(
            f"{error.name} is not installed here", hint=f"compile in the vLLM image; supported: {supported}"
        ) from error
    for line in LINES:
        if vllm.startswith(f"{line.vllm}.") and torch.startswith(f"{line.torch}."):
            return line
    raise UnsupportedError(f"vLLM {vllm} with torch {torch} is not supported", hint=f"supported: {supported}")
