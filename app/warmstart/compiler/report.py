"""What a compile pass is asked for and what came of it. Plain values: no torch is needed to read them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from warmstart.gpus.profile import GpuProfile


@dataclasses.dataclass(frozen=True, kw_only=True)
class CompileRequest:
    """One pass: a model, the server's own arguments and environment, a GPU type, and where the cache goes.

    `args` go to vLLM's parser unchanged, `env` is the server's environment. `model_files` is a folder with config.json and
    companions that stands in for the hub where `model` is a hub name. `cache_root` becomes VLLM_CACHE_ROOT; `server_root` is
    the server's own, where that is another: vLLM's lines without whole artifacts keep absolute paths. `jobs` bounds the
    ranks compiled at once (0: as cores and memory allow), `deadline_seconds` the whole pass (0: none). `gpu_count` is the
    number of GPUs that the server's container sees (0: a whole node, 8). `stub` is a libcuda stand-in that was built before,
    `work` a folder for one that is built now and for other files of the pass. `device` "cuda" compiles on the GPUs in sight,
    one for each rank, and lets Inductor tune there what fits into `tuning_bytes` of each one's memory (0: no limit). With
    `kernels`, the Triton kernels that the server launches beside the model are compiled as well.
    """

    model: str
    args: tuple[str, ...]
    env: Mapping[str, str]
    gpu: GpuProfile
    cache_root: Path
    server_root: Path | None = None
    model_files: Path | None = None
    jobs: int = 0
    deadline_seconds: float = 0.0
    gpu_count: int = 0
    stub: Path | None = None
    work: Path | None = None
    device: str = "none"
    tuning_bytes: int = 8 << 20
    kernels: bool = True


@dataclasses.dataclass(frozen=True, kw_only=True)
class RankReport:
    """What one rank's process compiled. Seconds are wall time by phase; `peak_bytes` is its resident peak.

    `graphs` are the (piece, range) pairs that its artifacts hold, `graphs_compiled` those that Inductor compiled in this pass.
    `passes` counts the matches of vLLM's fusion passes, `reads` the operators by which code asked a weight for its value.
    `factors` are digests of the parts of vLLM's key (env, config, system, torch, inductor, functorch). `gpu_memory` are figures
    of a pass with a GPU (`compiler/device.py`). `kernels` are Triton kernels that the server launches beside the model and that
    lie below the cache root by now; `kernels_reason` is why there may be more of them, empty where vLLM's warm-up went through;
    `kernels_unreached` are the layers that need a GPU to be entered, and why.
    """

    rank: int
    aot_keys: tuple[str, ...]
    modules_found: int
    modules_compiled: int
    modules_saved: int
    modules_loaded: int
    graphs: int
    graphs_compiled: int
    seconds: Mapping[str, float]
    peak_bytes: int
    passes: Mapping[str, int]
    reads: Mapping[str, int] = dataclasses.field(default_factory=dict)
    factors: Mapping[str, str] = dataclasses.field(default_factory=dict)
    gpu_memory: Mapping[str, int] = dataclasses.field(default_factory=dict)
    kernels: int = 0
    kernels_reason: str = ""
    kernels_unreached: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class CompileReport:
    """The whole pass. `aot_keys` are directory names under torch_compile_cache/torch_aot_compile, in order of first use.

    `outcome` is "compiled", "loaded" (every module came from the cache) or "nothing-to-compile", with `reason`.
    """

    outcome: str
    reason: str
    vllm: str
    torch: str
    gpu: str
    aot_keys: tuple[str, ...]
    ranks: tuple[RankReport, ...]
    seconds: float

    @property
    def gpu_memory_bytes(self) -> int:
        """Bytes of a GPU that a rank took beyond its CUDA context, at most; 0 for a pass without a GPU."""
        return max((rank.gpu_memory.get("driver", 0) for rank in self.ranks), default=0)

    @property
    def kernels(self) -> int:
        """Triton kernels that the server launches beside the model, and that lie below the cache root."""
        return max((rank.kernels for rank in self.ranks), default=0)

    @property
    def modules(self) -> int:
        """Compiled modules that each rank holds, summed over ranks."""
        return sum(rank.modules_saved + rank.modules_loaded for rank in self.ranks)

    @property
    def graphs(self) -> int:
        """Piecewise graphs in the saved artifacts, summed over ranks."""
        return sum(rank.graphs for rank in self.ranks)
