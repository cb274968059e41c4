"""The world of ranks: one process stands for one rank, and the others are not there."""

from __future__ import annotations

from typing import Any

from warmstart.compiler.seams.base import Bench, stage


@stage("vllm", "world.process-groups", "a rank joins NCCL and gloo groups of the whole world; here each rank compiles alone")
def process_groups(bench: Bench) -> None:
    """Use torch's own `fake` backend: groups have the right ranks and sizes, collectives return at once."""
    bench.module("torch.testing._internal.distributed.fake_pg")
    dist = bench.module("torch.distributed")
    init, new = dist.init_process_group, dist.new_group

    def init_process_group(*_args: Any, world_size: int = -1, rank: int = -1, **_kwargs: Any) -> None:
        init("fake", store=dist.HashStore(), rank=rank, world_size=world_size)

    def new_group(ranks: Any = None, *_args: Any, **_kwargs: Any) -> Any:
        return new(ranks, backend="fake")

    def all_gather_object(into: list[Any], value: Any, **_kwargs: Any) -> None:
        into[:] = [value] * len(into)

    for where in (dist, dist.distributed_c10d):
        bench.replace(where, "init_process_group", init_process_group)
        bench.replace(where, "new_group", new_group)
        bench.replace(where, "barrier", lambda *_args, **_kwargs: None)
        bench.replace(where, "broadcast_object_list", lambda *_args, **_kwargs: None)
        bench.replace(where, "all_gather_object", all_gather_object)


@stage("vllm", "world.one-node", "vLLM finds out through shared memory which ranks share a node")
def one_node(bench: Bench) -> None:
    """All ranks of a group share one node; a request that spans nodes is refused before the pass."""
    state = "vllm.distributed.parallel_state"
    bench.replace_everywhere(state, "_node_count", lambda _group: 1)
    bench.replace_everywhere(state, "in_the_same_node_as", lambda group, *_args, **_kwargs: [True] * group.size())


@stage(
    "vllm",
    "world.agreement",
    "data-parallel ranks tell each other before each step how many tokens they have, and pad to the most",
)
def agreement(bench: Bench) -> None:
    """Take this rank's own numbers for everyone's, as vLLM does where it knows so: all ranks run the same profiling batch."""
    bench.replace_everywhere("vllm.v1.worker.dp_utils", "should_skip_dp_coordination", lambda: True)


@stage("vllm", "world.communicators", "NCCL, custom all-reduce and symmetric memory allocate on every GPU of the group")
def communicators(bench: Bench) -> None:
    """Make communicators that hold no memory. Graphs name collectives by operator, never by communicator."""
    base = "vllm.distributed.device_communicators"

    def pynccl(self: Any, group: Any, device: Any, *_args: Any, **_kwargs: Any) -> None:
        self.disabled, self.available = True, False
        self.group, self.device, self.rank, self.world_size = group, device, 0, 1

    def custom_all_reduce(self: Any, *_args: Any, **_kwargs: Any) -> None:
        self.disabled, self._ptr = True, 0

    def symmetric(self: Any, *_args: Any, **_kwargs: Any) -> None:
        self.disabled = True

    bench.replace(bench.module(f"{base}.pynccl").PyNcclCommunicator, "__init__", pynccl)
    reduce = bench.module(f"{base}.custom_all_reduce").CustomAllreduce
    bench.replace(reduce, "__init__", custom_all_reduce)
    bench.replace(reduce, "__del__", lambda _self: None)
    bench.replace(bench.module(f"{base}.symm_mem").SymmMemCommunicator, "__init__", symmetric)

    class Queue:
        def __getattr__(self, _name: str) -> Any:
            return lambda *_args, **_kwargs: None

    queues = bench.module(f"{base}.shm_broadcast").MessageQueue
    bench.replace(queues, "create_from_process_group", staticmethod(lambda *_args, **_kwargs: Queue()))


@stage(
    "vllm",
    "world.fused-all-reduce",
    "the pass that fuses all-reduce with RMSNorm switches itself off, with a warning, without a workspace",
)
def fused_all_reduce(bench: Bench) -> None:
    """Answer with a workspace of the backend that a node of this GPU type gets, so that the graph is the fused one."""

    class Workspace:
        def __init__(self, backend: str) -> None:
            self.backend = backend

        def __getattr__(self, name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            return lambda *_args, **_kwargs: None

    bench.replace_everywhere(
        "vllm.distributed.device_communicators.flashinfer_all_reduce",
        "_create_workspace",
        lambda backend, *_args, **_kwargs: Workspace(backend),
    )
