"""What the GPU tests read of logs, listings and graphs: real ones of a stock server on an H200, and each kind of bad news."""

from __future__ import annotations

import importlib.util
import json
import subprocess
from pathlib import Path

import pytest
from tests.gpu import evidence

DATA = Path(__file__).parent / "data"
KEY = "b50187cbeedd60beccb98b9eb0c76ea31d1ebddce5b68a9278425418dbb7c5ee"
MODEL = f"{evidence.AOT}/{KEY}/rank_0_0/model"
UNPACKED = f"{evidence.AOT}/{KEY}/inductor_cache/5f/c5fid.py"


def log(name: str) -> str:
    return (DATA / name).read_text()


def test_a_start_on_an_installed_artifact_is_read() -> None:
    """The key that was loaded, no graph compiled, nothing saved, and both of vLLM's own times."""
    assert evidence.read(log("ours.log")) == evidence.Started(frozenset({KEY}), 0, 0, 1.16, 30.61)


def test_a_cold_start_is_read() -> None:
    """Nothing loaded; graphs were compiled, and the artifact saved."""
    assert evidence.read(log("cold.log")) == evidence.Started(frozenset(), 1, 1, 22.82, 54.98)


def test_the_times_of_several_modules_are_added_up() -> None:
    """A draft model is a module of its own, with a line of its own."""
    two = log("ours.log") + log("ours.log").replace("[backbone]", "[eagle_head]").replace("1.16 s in total", "0.34 s in total")
    assert evidence.read(two).torch_compile_seconds == 1.5


def test_of_several_ranks_the_slowest_counts() -> None:
    """Ranks work side by side, each in a process of its own."""
    two = log("ours.log").replace("EngineCore pid=", "Worker_TP0 pid=1") + log("ours.log").replace("1.16 s", "1.4 s")
    assert evidence.read(two).torch_compile_seconds == 1.4


def test_answers_are_compared_up_to_where_they_part() -> None:
    """What follows another token is another text; the two tokens themselves must be as good as tied."""
    one = [{"tokens": ["a", "b", "c"], "logprobs": [-1.0, -2.0, -3.0]}]
    assert evidence.apart(one, one) == 0
    assert evidence.apart(one, [{"tokens": ["a", "x", "y"], "logprobs": [-1.0, -2.001, -9.0]}]) == 0.001
    assert evidence.apart(one, [{"tokens": ["a", "x", "y"], "logprobs": [-1.0, -2.5, -3.0]}]) == 0.5
    assert evidence.apart(one, [{"tokens": ["a", "b", "c"], "logprobs": [-1.25, -2.0, -3.0]}]) == 0.25


def test_a_log_that_was_cut_short_has_no_times() -> None:
    """A server that never came up must not look like one that took no time."""
    first = log("cold.log").splitlines()[0]
    assert evidence.read(first) == evidence.Started(frozenset(), 0, 0, None, None)


def test_the_keys_of_a_listing_are_its_artifact_folders() -> None:
    """Also those of which only a folder of Inductor's is there: the server looked the key up and did not find it."""
    other = f"{evidence.AOT}/{'c' * 64}/inductor_cache/be/x.py"
    assert evidence.aot_keys(frozenset({MODEL, UNPACKED, other, "modelinfos/a.json"})) == {KEY, "c" * 64}


def test_what_torch_unpacks_from_an_artifact_is_expected() -> None:
    """That, and what other parts of the server keep in the cache root."""
    before = frozenset({MODEL})
    assert evidence.unexpected(before, before | {UNPACKED, "deep_gemm/cache/x.cubin"}) == []


@pytest.mark.parametrize(
    "path",
    [
        f"{evidence.AOT}/{'c' * 64}/rank_0_0/model",
        f"{evidence.AOT}/{'c' * 64}/inductor_cache/be/x.py",
        f"{evidence.AOT}/{KEY}/rank_1_0/model",
        "torch_compile_cache/d45389bbf9/rank_0_0/backbone/computation_graph.py",
    ],
)
def test_any_other_new_file_of_the_compile_cache_is_not(path: str) -> None:
    """An artifact, the trace of a look-up elsewhere, or a dumped graph: the server compiled, or another key was asked for."""
    before = frozenset({MODEL})
    assert evidence.unexpected(before, before | {UNPACKED, path}) == [path]


def test_new_files_are_told_by_kind() -> None:
    """A folder below the root, and a suffix, or the name of a file that has none."""
    files = [MODEL, UNPACKED, f"{evidence.AOT}/{KEY}/inductor_cache/be/x.py", "triton/A/k.cubin"]
    assert evidence.kinds(files) == {"torch_compile_cache: .py": 2, "torch_compile_cache: model": 1, "triton: .cubin": 1}


def test_a_choice_is_the_binary_that_a_server_found_fastest(tmp_path: Path) -> None:
    """By the file of its kernel; how long the choice took, which is never the same, does not count. No root has none."""
    told = {"XBLOCK": 8, "num_warps": 2, "time_taken_ms": 27, "triton_cache_hash": "PBJU"}
    for root, took in (("one", 27), ("other", 31)):
        file = tmp_path / root / evidence.AOT / KEY / "inductor_cache" / "6j" / "6f42.best_config"
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps({**told, "time_taken_ms": took}))
    assert evidence.choices(tmp_path / "one") == evidence.choices(tmp_path / "other") == {"6f42": "PBJU"}
    assert evidence.choices(tmp_path / "none") == {}


def test_a_listing_names_files_by_their_path_below_the_root(tmp_path: Path) -> None:
    """Folders are not listed."""
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "c.txt").write_text("")
    assert evidence.listing(tmp_path) == {"a/c.txt"}


def write_graph(root: Path, digest: str, source: str, module: str = "backbone") -> None:
    folder = root / "torch_compile_cache" / digest / "rank_0_0" / module
    folder.mkdir(parents=True)
    (folder / "computation_graph.py").write_text(source)


def test_graphs_that_differ_in_comments_only_are_equal(tmp_path: Path) -> None:
    """Those of the pass and of the server, which name other source lines and lie under other hashes."""
    made, native = (DATA / "graph.pass.txt").read_text(), (DATA / "graph.native.txt").read_text()
    assert made != native
    write_graph(tmp_path / "pass", "f12c73f016", made)
    write_graph(tmp_path / "native", "d45389bbf9", native)
    assert evidence.graphs(tmp_path / "pass") == evidence.graphs(tmp_path / "native") != {}


def test_a_graph_that_differs_in_one_shape_is_another(tmp_path: Path) -> None:
    """Code is compared to the letter, and so are the modules that have a graph."""
    native = (DATA / "graph.native.txt").read_text()
    write_graph(tmp_path / "pass", "f12c73f016", native.replace("[s72, 4096]", "[s72, 4095]"))
    write_graph(tmp_path / "native", "d45389bbf9", native)
    assert evidence.graphs(tmp_path / "pass") != evidence.graphs(tmp_path / "native")
    write_graph(tmp_path / "more", "d45389bbf9", native)
    write_graph(tmp_path / "more", "0123456789", native, module="eagle_head")
    assert evidence.graphs(tmp_path / "more").keys() == {"rank_0_0/backbone", "rank_0_0/eagle_head"}


def test_generated_kernels_are_found_by_name(tmp_path: Path) -> None:
    """In Inductor's code below an artifact's folder, each once."""
    generated = tmp_path / evidence.AOT / KEY / "inductor_cache" / "2j"
    generated.mkdir(parents=True)
    for name in ("a.py", "b.py"):
        (generated / name).write_text((DATA / "generated.txt").read_text())
    assert evidence.kernels(tmp_path) == {"triton_per_fused_fused_add_rms_norm_0"}


def test_kernels_beside_the_graphs_are_told_from_those_in_them() -> None:
    own, inductors = "A" * 52, "B" * 52
    names = (f"{own}/_k.cubin", f"{own}/_k.json", f"{inductors}/triton_poi_fused_0.cubin", "x/_k.cubin")
    assert evidence.own_kernels(frozenset(f"triton/{name}" for name in names)) == {own: "_k"}


_PTX = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 to) {{
.reg .b64 %a;
.reg .f32 %f;
.loc 1 1 0
ld.param.u64 %a, [to];
mov.f32 %f, {number};
st.global.f32 [%a], %f;
ret; }}
.file 1 "{source}"
"""


def kernel(root: Path, name: str, digest: str, *, source: str = "/one/k.py", number: str = "0f3F800000") -> str:
    """Assemble a kernel into a Triton cache; return its path relative to the root."""
    spec = importlib.util.find_spec("triton")
    assert spec is not None
    assert spec.origin is not None
    folder = root / "triton" / (digest * 52)
    folder.mkdir(parents=True)
    ptx, cubin = folder / f"{name}.ptx", folder / f"{name}.cubin"
    ptx.write_text(_PTX.format(source=source, number=number))
    ptxas = Path(spec.origin).parent / "backends" / "nvidia" / "bin" / "ptxas"
    subprocess.run([str(ptxas), "-lineinfo", "-arch=sm_90", str(ptx), "-o", str(cubin)], check=True)
    return cubin.relative_to(root).as_posix()


def test_machine_code_is_what_a_gpu_executes(tmp_path: Path) -> None:
    """Where its source lay is no part of it; another constant is."""
    name = "triton_poi_fused_0"
    file = kernel(tmp_path / "a", name, "A")
    assert kernel(tmp_path / "b", name, "A", source="/another/folder/k.py") == file
    kernel(tmp_path / "c", name, "A", number="0f40000000")
    ours, native, other = (evidence.machine_code(tmp_path / root, frozenset({file})) for root in "abc")
    assert (tmp_path / "a" / file).read_bytes() != (tmp_path / "b" / file).read_bytes()
    assert list(ours) == [f"{name} {'A' * 52}"]
    assert ours == native != other


def test_only_kernels_of_graphs_that_were_listed_count(tmp_path: Path) -> None:
    listed = kernel(tmp_path, "triton_poi_fused_0", "A")
    own = kernel(tmp_path, "_gumbel_sample_kernel", "B")
    kernel(tmp_path, "triton_poi_fused_1", "C")
    files = frozenset({listed, own, f"triton/{'D' * 52}/__grp__triton_x.json", f"{MODEL}"})
    assert list(evidence.machine_code(tmp_path, files)) == [f"triton_poi_fused_0 {'A' * 52}"]
