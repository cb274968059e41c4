"""What of a vLLM cache root travels. The first rule that matches a path decides; a path that no rule matches is kept.

Kept is the safe default: an unneeded file costs bytes, a missing one costs a compile at every start. Every rule that drops says
why that is safe; tests/store/test_what_a_start_reads.py shows that a start from what is kept compiles nothing and reads it all.
"""

from __future__ import annotations

import dataclasses
import re

AOT = r"torch_compile_cache/torch_aot_compile/[0-9a-f]{64}"
BACKBONE = r"torch_compile_cache/[0-9a-f]{10}/rank_\d+_\d+/[^/]+"

AOT_ARTIFACT = re.compile(r"torch_compile_cache/torch_aot_compile/(?P<aot_key>[0-9a-f]{64})/rank_\d+_\d+/model")
_AOT_FOLDER = re.compile(r"torch_compile_cache/torch_aot_compile/(?P<aot_key>[0-9a-f]{64})/")
_RANK = re.compile(r"(?:^|/)rank_(\d{1,5})_(\d{1,5})/")


@dataclasses.dataclass(frozen=True)
class Rule:
    """One line of the table: paths relative to the cache root that match `pattern` whole are kept or dropped for `reason`."""

    pattern: str
    keep: bool
    reason: str

    def matches(self, path: str) -> bool:
        """Whether this rule speaks of `path`."""
        return re.fullmatch(self.pattern, path) is not None


RULES = (
    Rule(r"\.warmstart/.*", False, "markers and staging of our own"),
    Rule(r"(.*/)?[^/]*\.lock|(.*/)?locks/.*", False, "lock files: of the processes that compiled"),
    Rule(r"(.*/)?[^/]*\.tmp(\.[^/]*)?|(.*/)?tmp\.[^/]*", False, "temporary files of an interrupted writer"),
    Rule(rf"{AOT}/rank_\d+_\d+/model", True, "the AOT artifact: what vLLM loads, with every graph and kernel in it"),
    Rule(rf"{AOT}/inductor_cache/\w+/\w+\.best_config", True, "which configuration of a kernel was fastest on a GPU"),
    Rule(rf"{AOT}/inductor_cache/.*", False, "intermediates: what a start needs of them is inside the AOT artifact"),
    Rule(rf"{BACKBONE}/(computation_graph|transformed_code)\.py", False, "written for people to read, never read by vLLM"),
    Rule(rf"{BACKBONE}/cache_key_factors\.json", True, "not read by a start, but what `explain` compares a server with"),
    Rule(rf"{BACKBONE}/vllm_compile_cache\.py", True, "vLLM's index of its compiled graphs, in the modes that write one"),
    Rule(rf"{BACKBONE}/artifact_compile_range_\w+", True, "a compiled graph, where the AOT artifact holds none"),
    Rule(r"triton/[A-Z2-7]{52}/__grp__[^/]*", False, "absolute paths of a kernel's files: written anew where it is installed"),
    Rule(r"triton/[A-Z2-7]{52}/[^/]+\.(cubin|json)", True, "a Triton kernel, or which one was fastest"),
    Rule(r"triton/[A-Z2-7]{52}/cuda_utils\.[^/]+\.so", True, "what launches Triton's kernels, made by gcc otherwise"),
    Rule(r"triton/.*", False, "what else a compile of Triton's leaves, and a start does not read"),
    Rule(r"modelinfos/[^/]+\.json", True, "the result of inspecting the model class in a child process"),
    Rule(r"(startup_plan|assets|xla_cache|deep_gemm|dummy_cache)/.*", False, "not of the compile: of a machine or of media"),
    Rule(r"gpu_p2p_access_cache_for_.*", False, "measured on one machine's GPUs, wrong on another's"),
)

UNKNOWN = Rule(r".*", True, "no rule knows it")


def decide(path: str) -> Rule:
    """Return the rule that decides about `path`."""
    return next((rule for rule in RULES if rule.matches(path)), UNKNOWN)


def layer_of(path: str) -> str:
    """Return the layer that `path` belongs to: that of its rank, or the one that all ranks share."""
    rank = _RANK.search(path)
    return f"rank-{int(rank[1])}-{int(rank[2])}" if rank else "shared"


def aot_key_of(path: str) -> str | None:
    """Return the AOT key whose folder `path` lies in, or None."""
    folder = _AOT_FOLDER.match(path)
    return folder["aot_key"] if folder else None
