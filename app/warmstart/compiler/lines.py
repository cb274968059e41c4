"""The vLLM versions that this release compiles for. A version that is not here is refused by name."""

from __future__ import annotations

import dataclasses
import importlib.metadata

from warmstart.errors import UnsupportedError


@dataclasses.dataclass(frozen=True)
class Line:
    """One line of vLLM releases: the torch that it pairs with, and where it differs from the newest line.

    `arg_parser` is the module that makes the parser of `vllm serve`. `absent` are names that the pass uses or replaces in newer
    lines and that this one has not got: there is nothing to call or to stand in for. `whole_artifacts` says that an AOT
    artifact holds its compiled graphs ("mega" artifacts, from torch 2.12 on); without, they lie beside it, and an index names
    them by absolute paths.
    """

    vllm: str
    torch: str
    arg_parser: str
    absent: frozenset[str] = frozenset()
    whole_artifacts: bool = True

    def has(self, name: str) -> bool:
        """Return whether this line has a name that newer ones have."""
        return name not in self.absent


# A kernel's parameter goes through its layout transform itself, not a copy of it.
_SHALLOW_COPY = "vllm.model_executor.kernels.linear.mixed_precision.MPLinearKernel._shallow_copy"
# Widths of encoder outputs are not measured before the KV cache is laid out.
ENCODER_WIDTHS = "vllm.distributed.ec_transfer.ec_connector.encoder_output_width.measure_encoder_output_widths"
# The profile run has no choice of inputs.
RANDOMIZED_PROFILE = "vllm.v1.worker.gpu_worker.Worker.randomize_dummy_inputs"
# Warming up is a part of laying out the KV cache.
WARM_UP = "vllm.v1.executor.uniproc_executor.UniProcExecutor.compile_or_warm_up_model"
# Kernels are not registered to be compiled at a start.
REGISTRY = "vllm.model_executor.warmup.jit_warmup.JitWarmupRegistry"
# EngineCoreProc.run_engine_core sets the fields of an independent data-parallel rank itself.
INDEPENDENT_RANK = "vllm.config.ParallelConfig.reconfigure_for_independent_dp_rank"

LINES = (
    Line(vllm="0.33", torch="2.14", arg_parser="vllm.entrypoints.common.cli_args"),
    Line(vllm="0.32", torch="2.13", arg_parser="vllm.entrypoints.launchers.cli_args", absent=frozenset({_SHALLOW_COPY})),
    Line(
        vllm="0.26",
        torch="2.11",
        arg_parser="vllm.entrypoints.openai.cli_args",
        absent=frozenset(
            {
                "torch.accelerator.empty_host_cache",
                "humming.device",  # an older humming, which vLLM uses only where it is asked for
                _SHALLOW_COPY,
                ENCODER_WIDTHS,
                RANDOMIZED_PROFILE,
                INDEPENDENT_RANK,
                WARM_UP,
                REGISTRY,
                "vllm.v1.worker.dp_utils.should_skip_dp_coordination",
            }
        ),
        whole_artifacts=False,
    ),
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
    line, fits = nearest(vllm, torch)
    if fits:
        return line
    raise UnsupportedError(f"vLLM {vllm} with torch {torch} is not supported", hint=f"supported: {supported}")


def nearest(vllm: str, torch: str) -> tuple[Line, bool]:
    """Return the line by whose names to look at a version, and whether it is of that line.

    A version between two lines is looked at by the names of the older one.
    """
    for line in LINES:
        if vllm.startswith(f"{line.vllm}.") and torch.startswith(f"{line.torch}."):
            return line, True
    return next((line for line in LINES if _numbers(line.vllm) <= _numbers(vllm)), LINES[-1]), False


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) if part.isdigit() else 0 for part in version.split(".")[:2])
