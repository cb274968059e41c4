"""FlashInfer: nothing of it is built, loaded or downloaded in a pass, and nobody asks the network whether it could be."""

from __future__ import annotations

import logging
from typing import Any

from warmstart.compiler.seams.base import Bench, stage
from warmstart.errors import CompileError, UnsupportedError

# A name that `warned.Warned` listens to: should vLLM swallow the error and choose something else, the pass fails at its end.
_LOGGER = logging.getLogger("vllm.warmstart")
_WITH_TRTLLM = (9, 10, 12)


@stage(
    "vllm",
    "flashinfer.no-build",
    "kernels that prepare weights are compiled with nvcc at first use, for minutes, and would be launched on a device",
)
def no_build(bench: Bench) -> None:
    """Fail by the module's name: each that a pass needs has a stand-in by shape in `kernels`."""

    def build_and_load(spec: Any) -> Any:
        _LOGGER.warning("FlashInfer's module %s was to be built in a pass", spec.name)
        raise CompileError(f"FlashInfer's module {spec.name} was to be built, and a pass has no GPU to run it on")

    bench.replace(bench.module("flashinfer.jit.core").JitSpec, "build_and_load", build_and_load)


@stage(
    "vllm",
    "flashinfer.no-download",
    "kernels that an image has not got are fetched from NVIDIA's server, for minutes",
)
def no_download(bench: Bench) -> None:
    """Fail at once: a layer that needs such a kernel is not entered, and a pass needs none of them otherwise."""

    def download_file(source: Any, *_args: Any, **_kwargs: Any) -> Any:
        raise CompileError(f"FlashInfer's kernel {source} was to be downloaded, and a pass runs none")

    bench.replace("flashinfer.jit.cubin_loader", "download_file", download_file)


@stage(
    "vllm",
    "flashinfer.network",
    "without flashinfer-cubin vLLM takes TensorRT-LLM's attention kernels only where NVIDIA's server answers this machine",
)
def network(bench: Bench) -> None:
    """Answer by what the image holds; where it does not say, refuse: another machine's network decides no graph."""
    utils = bench.module("vllm.utils.flashinfer")

    def has_nvidia_artifactory() -> bool:
        if utils.has_flashinfer_cubin():
            return True
        if bench.gpu.capability[0] not in _WITH_TRTLLM:
            return False  # asked before the GPU is looked at, which has none of these kernels
        _LOGGER.warning("attention kernels were to be chosen by whether this machine reaches NVIDIA's server")
        raise UnsupportedError(
            "vLLM chooses attention kernels here by whether the server's machine reaches NVIDIA's artifactory",
            hint="serve from an image with flashinfer-cubin (vLLM's own has it), or set VLLM_HAS_FLASHINFER_CUBIN=1 there",
        )

    bench.replace_everywhere("vllm.utils.flashinfer", "has_nvidia_artifactory", has_nvidia_artifactory)
