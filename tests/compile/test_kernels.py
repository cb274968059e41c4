"""The Triton kernels that a server launches beside its graphs: which are compiled, and what a failure there may not do."""

from __future__ import annotations

import collections
import dataclasses
import json
import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.compile.conftest import Pass
from tests.compile.matrix import runner
from tests.compile.matrix.registry import cases

from warmstart.compiler import CompileReport, cuda_utils, stub, warmup
from warmstart.compiler.child import Reporter
from warmstart.compiler.driver import add_kernels, run_in
from warmstart.compiler.launches import FOLDER, Launches, Tensor
from warmstart.compiler.process import Process
from warmstart.compiler.seams import Bench
from warmstart.errors import TemporaryError
from warmstart.gpus import load_catalog

# A kernel of each kind that a class of servers launches: input preparation, sampler, experts, state space, draft model.
EVERY = {"_prepare_prefill_inputs_kernel", "_compute_slot_mappings_kernel", "_gumbel_sample_kernel", "_min_p_kernel"}
SERVERS = {
    "llama-3.2-1b": EVERY,
    "qwen3-30b-a3b": EVERY | {"fused_moe_kernel"},
    "granite-4.0-h-micro": EVERY | {"_chunk_scan_fwd_kernel", "_selective_scan_update_kernel"},
    "lora": EVERY | {"_lora_shrink_kernel", "_lora_expand_kernel"},
    "ngram": EVERY | {"_topp_sb_stats_kernel", "_topp_sb_step_kernel", "_topp_sb_mask_kernel"},
    "embedding": {"_prepare_prefill_inputs_kernel"},
}


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[CompileReport, Path]]:
    """Run the passes of the servers above, one process for all of them."""
    known, found = cases(), {}
    scratch = tmp_path_factory.mktemp("kernels")
    asked = {}
    for name in SERVERS:
        runner.lay_out(known[name], scratch)
        request = runner.request_of(known[name], scratch)
        asked[name] = dataclasses.replace(request, kernels=True, cache_root=scratch / "caches" / name)
    with Process(next(iter(asked.values())), scratch, forks=True) as process:
        for name, request in asked.items():
            request.cache_root.mkdir(parents=True)
            found[name] = run_in(process, request, hub=True), request.cache_root
    return found


@pytest.mark.compile
@pytest.mark.parametrize("name", SERVERS)
def test_a_servers_warm_up_goes_through_and_its_kernels_are_there(
    name: str, reports: dict[str, tuple[CompileReport, Path]]
) -> None:
    report, root = reports[name]
    (rank,) = report.ranks
    found = [path.stem for path in root.glob(f"{FOLDER}/*/*.cubin")]
    of_graphs = [name for name in found if name.startswith("triton_")]
    assert rank.kernels_reason == ""
    assert SERVERS[name] <= set(found)
    assert (report.kernels, len(of_graphs) > 0) == (len(found) - len(of_graphs), True)
    # FlashAttention is no Triton kernel: that it cannot be called without a GPU leaves nothing out.
    assert all("_vllm_fa3_C" in text for text in rank.kernels_unreached)


@pytest.mark.compile
def test_a_state_space_layer_has_every_variant_of_its_kernels(reports: dict[str, tuple[CompileReport, Path]]) -> None:
    """With and without initial states, and for state passing final ones, in the 12 and 6 configurations that vLLM times."""
    _, root = reports["granite-4.0-h-micro"]
    found = collections.Counter(path.stem for path in root.glob(f"{FOLDER}/*/*.cubin"))
    assert found["_chunk_scan_fwd_kernel"] == 2 * 12
    assert found["_state_passing_fwd_kernel"] == 4 * 6


@pytest.mark.compile
def test_a_pass_with_a_gpu_gets_the_kernels_of_one_without(first: Pass, tmp_path: Path) -> None:
    """The pass with a GPU is one without kernels here: what it left stays as it is."""
    root, scratch = tmp_path / "root", tmp_path / "scratch"
    shutil.copytree(first.request.cache_root, root)
    scratch.mkdir()
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    asked = dataclasses.replace(first.request, device="cuda", kernels=True, cache_root=root)
    report = add_kernels(first.report, asked, scratch)
    found = [path.stem for path in root.glob(f"{FOLDER}/*/*.cubin") if path not in before]
    assert set(found) >= EVERY
    assert (report.kernels, report.ranks[0].kernels_reason) == (len(found), "")
    assert report.aot_keys == first.report.aot_keys
    assert {path: path.read_bytes() for path in before} == before
    assert list(root.glob(f"{FOLDER}/*/cuda_utils.*"))
    for group in root.glob(f"{FOLDER}/*/__grp__*"):
        if group not in before:
            assert all(Path(path).parent == group.parent for path in json.loads(group.read_text())["child_paths"].values())


@pytest.mark.compile
def test_a_pass_with_a_gpu_whose_second_one_fails_keeps_what_it_has(first: Pass, tmp_path: Path) -> None:
    root = tmp_path / "root"
    shutil.copytree(first.request.cache_root, root)
    before = sorted(root.rglob("*"))
    asked = dataclasses.replace(first.request, device="cuda", kernels=True, cache_root=root, args=("--no-such-option",))
    report = add_kernels(first.report, asked, tmp_path)
    assert report.ranks[0].kernels_reason.startswith("the pass without a GPU: ")
    assert "no-such-option" in report.ranks[0].kernels_reason
    assert {path for path in root.rglob("*") if path.is_file()} <= set(before)
    (again := tmp_path / "again").mkdir()
    with pytest.raises(TemporaryError, match="stopped"):
        add_kernels(first.report, asked, again, stop=lambda: True)


# Triton's own code, as a server runs it whose libcuda.so.1 lies in a folder; there is no compiler.
LOADS = """
import ctypes, sys
ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)
from triton.backends.nvidia import driver
driver.libcuda_dirs = lambda: sys.argv[2:]
driver.library_dirs.cache_clear()
utils = driver.CudaUtils()
try:
    utils.get_device_properties(0)
except RuntimeError as error:
    print(error)
"""


@pytest.mark.compile
@pytest.mark.parametrize("found", cuda_utils.driver_folders(), ids=":".join)
def test_a_server_finds_tritons_module_compiled(
    found: list[str], reports: dict[str, tuple[CompileReport, Path]], tmp_path: Path
) -> None:
    """Wherever its driver is. What it loads calls into the driver that the process has."""
    folder = reports["llama-3.2-1b"][1] / FOLDER
    modules = sorted(folder.glob("*/cuda_utils.*"))
    assert len({path.read_bytes() for path in modules}) == 1
    driver = tmp_path / stub.SONAME
    stub.build(stub.driver_symbols(modules[0]), driver)
    before = sorted(folder.rglob("*"))
    environment = {**os.environ, "TRITON_CACHE_DIR": str(folder), "CC": "/nonexistent/cc"}
    command = [sys.executable, "-c", LOADS, str(driver), *found]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Triton Error [CUDA]" in done.stdout
    assert sorted(folder.rglob("*")) == before


def test_a_server_that_is_told_where_its_driver_is_looks_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_LIBCUDA_PATH", "/opt/driver")
    assert cuda_utils.driver_folders() == [["/opt/driver"]]


def test_an_image_with_a_driver_of_its_own_has_the_nodes_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """In either order, whichever the loader lists first; alone, too, and without it."""
    own = "/usr/local/cuda/compat"
    monkeypatch.delenv("TRITON_LIBCUDA_PATH", raising=False)
    monkeypatch.setattr(cuda_utils, "_linked_here", lambda: iter([own]))
    found = cuda_utils.driver_folders()
    debian = f"lib/{platform.machine()}-linux-gnu"
    for node in (f"/{debian}", f"/usr/{debian}", "/lib64", "/usr/lib64", "/usr/local/nvidia/lib64"):
        assert all(folders in found for folders in ([node], [own], [node, own], [own, node]))
    assert len(found) == 16


def test_a_usual_place_is_not_named_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_LIBCUDA_PATH", raising=False)
    monkeypatch.setattr(cuda_utils, "_linked_here", lambda: iter(["/lib64", "/opt/driver"]))
    found = cuda_utils.driver_folders()
    assert all(len(set(folders)) == len(folders) for folders in found)
    assert len({tuple(folders) for folders in found}) == len(found)


@pytest.mark.parametrize("offset", [0, 1, 4, 8, 16])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.int32, torch.int64], ids=str)
def test_a_described_tensor_is_to_triton_what_a_real_one_is(offset: int, dtype: torch.dtype) -> None:
    """Type and alignment decide which kernel is compiled. Triton reads a real tensor's address; ours tells its offset."""
    from triton._C.libtriton import native_specialize_impl
    from triton.backends.compiler import GPUTarget
    from triton.compiler.compiler import make_backend

    backend = type(make_backend(GPUTarget("cuda", 90, 32)))
    real = torch.zeros(64, dtype=dtype)
    assert real.data_ptr() % 16 == 0
    view = real[offset:]
    assert native_specialize_impl(backend, Tensor(view), False, True, True) == native_specialize_impl(
        backend, view, False, True, True
    )


class Executor:
    """An executor whose warm-up does what a test wants."""

    def __init__(self, do: Any) -> None:
        self._do = do

    def warm_up(self, bench: Bench) -> None:
        assert bench.launches.folder is not None
        kernel = bench.launches.folder / ("ABCD"[bench.launches.share[0]] * 52)
        kernel.mkdir(parents=True)
        (kernel / "_k.cubin").write_bytes(b"")
        self._do()


def compile_with(
    do: Any,
    root: Path,
    seconds: float = float("inf"),
    bench_of: list[Bench] | None = None,
    standin: str | None = None,
    jobs: int = 1,
) -> dict[str, Any]:
    with torch.compiler.set_stance("force_eager"):
        pass  # it imports Dynamo, which is no part of a warm-up
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if standin is None:
        standin = str(stub.ensure(root))
    bench = Bench(gpu=load_catalog().get("h200"), visible=1, standin=standin)
    bench.mode = torch.inference_mode()
    if bench_of is not None:
        bench_of.append(bench)
    with ours, theirs:
        executor: Any = Executor(do)
        return warmup.compile_kernels(executor, bench, root, Reporter(theirs), time.monotonic() + seconds, jobs)


def test_a_crash_in_a_kernel_library_is_told_and_takes_nothing_with_it(tmp_path: Path) -> None:
    of_a_graph = tmp_path / FOLDER / ("X" * 52)
    of_a_graph.mkdir(parents=True)
    (of_a_graph / "triton_poi_fused_0.cubin").write_bytes(b"")
    told = compile_with(lambda: os.kill(os.getpid(), signal.SIGKILL), tmp_path)
    assert (told["kernels"], told["kernels_reason"]) == (1, "vLLM's warm-up was killed by SIGKILL")


def test_several_processes_share_the_kernels_and_one_that_crashes_takes_only_its_own(tmp_path: Path) -> None:
    bench_of: list[Bench] = []

    def crash_in_the_second() -> None:
        if bench_of[0].launches.share == (1, 3):
            os.kill(os.getpid(), signal.SIGKILL)
        bench_of[0].launches.failed["the compiler's"] += 1
        bench_of[0].launches.unreached["a layer"] += 1

    told = compile_with(crash_in_the_second, tmp_path, bench_of=bench_of, jobs=3)
    assert told == {
        "kernels": 3,
        "kernels_reason": "the compiler's; vLLM's warm-up was killed by SIGKILL",
        "kernels_unreached": ["a layer"],
    }


@pytest.mark.parametrize("number", [1, 2, 5])
def test_each_kernel_is_of_one_process(number: int) -> None:
    shares = [Launches() for _ in range(number)]
    for index, launches in enumerate(shares):
        launches.share = (index, number)
    kernel = type("Kernel", (), {"name": "_k"})
    for key in map(str, range(50)):
        assert [launches._is_of_another(key=key, fn=kernel, repr="") for launches in shares].count(False) == 1


def test_a_warm_up_in_which_nothing_happens_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warmup, "_QUIET_SECONDS", 10.0)
    told = compile_with(lambda: time.sleep(600), tmp_path)
    assert (told["kernels"], told["kernels_reason"]) == (1, "nothing happened for 10 s")


def test_its_end_is_not_missed_among_what_it_tells(tmp_path: Path) -> None:
    """Counts and the result come in one stream, some of them at once."""
    bench_of: list[Bench] = []

    def busy() -> None:
        for _ in range(5000):
            bench_of[0].launches.alive()

    told = compile_with(busy, tmp_path, bench_of=bench_of)
    assert told == {"kernels": 1, "kernels_reason": "", "kernels_unreached": []}


def test_an_error_in_the_warm_up_is_told_with_its_place(tmp_path: Path) -> None:
    def fail() -> None:
        raise ValueError("no such thing")

    told = compile_with(fail, tmp_path)
    assert told["kernels_reason"].startswith("ValueError in test_kernels.py:")
    assert told["kernels_reason"].endswith("no such thing")


def test_a_module_of_tritons_that_cannot_be_linked_is_told_and_the_kernels_are_made(tmp_path: Path) -> None:
    told = compile_with(lambda: None, tmp_path, standin=str(tmp_path / "nothing"))
    assert "cuda_utils.c" in told["kernels_reason"] or "CalledProcessError" in told["kernels_reason"]
    assert (tmp_path / FOLDER / ("A" * 52) / "_k.cubin").is_file()
    assert not list(tmp_path.glob("triton/*/cuda_utils*"))


def test_a_warm_up_that_outlasts_the_pass_is_ended_before_it(tmp_path: Path) -> None:
    told = compile_with(lambda: time.sleep(600), tmp_path, seconds=20)
    assert (told["kernels"], told["kernels_reason"]) == (1, "the pass's time was up")
