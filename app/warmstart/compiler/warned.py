"""Warnings of vLLM and torch during the pass: each one may be a pass switched off or a fallback taken, so each is an error.

vLLM goes on with a warning where a GPU, a library or the network is not as it wants: a fusion pass disables itself, a kernel
choice falls back, an artifact is not saved. A server with a GPU does not, and finds another graph under the same key. So
every warning that is not in the table below ends the pass with its text.
"""

from __future__ import annotations

import dataclasses
import logging
import re
import sys
from typing import Any

from warmstart.errors import CompileError, shorten


@dataclasses.dataclass(frozen=True)
class Harmless:
    """A warning that says nothing about the graph, and why."""

    logger: str
    message: str
    why: str

    def matches(self, record: logging.LogRecord, text: str) -> bool:
        """Tell whether a log record is this warning."""
        return record.name.startswith(self.logger) and re.match(self.message, text) is not None


HARMLESS = (
    Harmless(
        "torch._inductor.triton_bundler",
        r"Directory .* is not empty",
        "two artifacts of a module hold the same kernel, and the one unpacked first is used",
    ),
    Harmless("vllm.", r".* is deprecated", "the option still does what it did; the server is told the same"),
    Harmless("vllm.utils.argparse_utils", r"Found duplicate keys", "the last one counts, for the server too"),
    Harmless("vllm.envs", r"Unknown vLLM environment variable", "vLLM ignores it, and so does its key"),
    Harmless(
        "vllm.utils.flashinfer",
        r"FlashInfer kernels are disabled",
        "decided by nvcc, ninja and flashinfer-cubin, which the request key holds: a server with others asks another entry",
    ),
    Harmless(
        "vllm.utils.flashinfer", r"FlashInfer's precompiled kernels are missing", "how long a start takes, not what it compiles"
    ),
    Harmless(
        "vllm.config",
        r"(?!Model Runner V2 requires Triton)",
        "chosen by arguments, environment, model and GPU type: the server warns of the same, and chooses the same",
    ),
    Harmless("vllm.engine.arg_utils", r"", "options that the server is told as well"),
    Harmless("vllm.v1.sample.logits_processor", r"min_p and logit_bias", "sampling parameters; sampling is not compiled"),
    Harmless("vllm.model_executor.models.config", r"", "chosen by the model, which the server has too"),
    Harmless(
        "vllm.model_executor.models.interfaces", r"The model .* sets", "about the model's own code, which the server runs too"
    ),
    Harmless(
        "vllm.platforms.cuda",
        r"Forcing --disable_chunked_mm_input",
        "decided by the model's attention: the server schedules its images the same way",
    ),
    Harmless(
        "vllm.v1.attention.backends.fa_utils",
        r"(Cannot use FA version|FA4)",
        "decided by the GPU type and the model's heads; attention itself is not compiled",
    ),
    Harmless(
        "vllm.distributed.device_communicators.flashinfer_all_reduce",
        r"FlashInfer All Reduce is disabled because it is not supported for world_size",
        "decided by the GPU type and the number of ranks",
    ),
    Harmless("torch._inductor.utils", r"Not enough SMs to use max_autotune_gemm", "decided by the GPU type's multiprocessors"),
    Harmless("vllm.v1.core", r"", "about the KV cache and the scheduler, which are not compiled"),
    Harmless("vllm.v1.sample", r"FlashInfer top-p/top-k sampling unavailable", "sampling is not compiled"),
    Harmless("vllm.utils.system_utils", r"Found ulimit", "a limit of the API server's sockets"),
    Harmless(
        "vllm.model_executor",
        r"Your GPU does not have native support for FP[48] computation",
        "decided by the GPU type, which the server has too",
    ),
    Harmless(
        "vllm.model_executor.kernels.linear",
        r"(\w+ is a weight-only \(A16\) kernel|--linear-backend=\w+ has no kernel for this linear layer type)",
        "decided by the GPU type and the server's own arguments",
    ),
    Harmless(
        "vllm.model_executor.layers.quantization.utils.marlin_utils",
        r"Marlin requires thread-tile padding",
        "decided by the shapes of the model",
    ),
    Harmless(
        "vllm.model_executor.layers.quantization.kv_cache",
        r"(Checkpoint does not provide a q scaling factor|Using KV cache scaling factor 1\.0|Using uncalibrated q_scale)",
        "values of scales, which attention reads when it runs",
    ),
    Harmless("vllm.transformers_utils.repo_utils", r"Error retrieving safetensors", "see the next line"),
    Harmless(
        "vllm.transformers_utils.config",
        r"Could not retrieve safetensors metadata",
        "what is chosen by the checkpoint's headers is refused without them (headers.py)",
    ),
    Harmless("vllm.model_executor.layers", r".* JIT-compiled; first run may take a while", "how long a start takes"),
    Harmless(
        "vllm.model_executor.layers",
        r"Using default (MoE|W8A8 Block FP8 kernel) config",
        "tuned files come with vLLM: the server lacks them too",
    ),
)
_LOGGERS = ("vllm.", "torch._inductor", "torch._dynamo", "torch._functorch", "torch.fx")


class Warned:
    """Collects warnings of vLLM and torch that are not known to be harmless."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def install(self) -> None:
        """Listen from here on, where log records are made: handlers and levels are the server's to configure."""
        make = logging.getLogRecordFactory()

        def factory(*args: Any, **kwargs: Any) -> logging.LogRecord:
            record = make(*args, **kwargs)
            if record.levelno >= logging.WARNING and record.name.startswith(_LOGGERS):
                self._take(record)
            return record

        logging.setLogRecordFactory(factory)

    def check(self) -> None:
        """Raise if anything was said.

        Raises:
            CompileError: vLLM or torch warned of something that may have changed the graph.

        """
        if not self.texts:
            return
        for text in self.texts:
            print(f"warmstart: a warning that is not known to be harmless: {text}", file=sys.stderr)
        more = f" (and {len(self.texts) - 1} more)" if len(self.texts) > 1 else ""
        raise CompileError(
            f"vLLM warned during the pass, so the graph may not be the server's: {self.texts[0]}{more}",
            hint="make the build machine like the server (same image), or report this line",
        )

    def _take(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if not any(known.matches(record, text) for known in HARMLESS):
            self.texts.append(shorten(f"{record.name}: {text}"))
