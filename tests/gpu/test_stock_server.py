"""A stock `vllm serve` on a real GPU uses what was compiled without one, and would have compiled the very same.

`make test-gpu` runs this on a machine with an NVIDIA GPU. Each case takes two passes and two starts, and ends with one JSON
line for docs/proof.
"""

from __future__ import annotations

import json

import pytest
from tests.gpu import evidence
from tests.gpu.cases import Case
from tests.gpu.proofs import Proof

pytestmark = pytest.mark.gpu
# Servers of which some Triton kernels beside the graphs are not reached without a GPU.
OWN_KERNELS_MISSING = ("gpt-oss-mxfp4", "fp8-block-moe", "qwen3-next-gdn")
_TIE = 0.02  # of a natural logarithm; bfloat16 logits of these models differ by about as much in their last digit


def test_the_server_loads_every_artifact_and_compiles_nothing(case: Case, proof: Proof) -> None:
    """Each module's artifact is loaded from where it was installed; not one graph is compiled, nothing is saved."""
    keys = frozenset(proof.compiled["aot_keys"])
    assert (proof.compiled["outcome"], proof.installed["outcome"]) == ("compiled", "hit")
    assert len(keys) == case.modules
    assert proof.ours.started.loaded == keys
    assert (proof.ours.started.compiled_graphs, proof.ours.started.saved) == (0, 0)


def test_the_server_looks_under_our_keys_and_no_others(proof: Proof) -> None:
    """For each key that it looks up, vLLM makes a folder. New files are those that torch unpacks from the artifacts."""
    assert evidence.aot_keys(proof.ours.before) == frozenset(proof.compiled["aot_keys"])
    assert evidence.aot_keys(proof.ours.after) == evidence.aot_keys(proof.ours.before)
    assert evidence.unexpected(proof.ours.before, proof.ours.after) == []


def test_verify_says_that_it_was_used(proof: Proof) -> None:
    """What an operator would ask says the same as the log."""
    code, document = proof.verified
    assert (code, document["outcome"]) == (0, "used"), document


def test_a_native_start_has_the_same_keys(proof: Proof) -> None:
    """On an empty root the server compiles, and saves under the keys of the pass."""
    assert proof.native.started.compiled_graphs > 0
    assert proof.native.started.loaded == frozenset()
    assert evidence.aot_keys(proof.native.after) == frozenset(proof.compiled["aot_keys"])
    assert frozenset(proof.kept.aot_keys) == frozenset(proof.compiled["aot_keys"])


def test_the_graphs_are_those_that_the_server_traces(case: Case, proof: Proof) -> None:
    """A wrong graph under the right key cannot hide: what vLLM dumps is equal but for comments, on every rank."""
    server, made = evidence.graphs(proof.native_root), evidence.graphs(proof.pass_root)
    assert len(server) >= case.modules
    assert made == server


def test_the_generated_kernels_are_those_of_the_server(case: Case, proof: Proof) -> None:
    """The same fusions: Inductor generated kernels of the same names on both sides, and what must be fused is.

    For sizes that are compiled by themselves vLLM lets Inductor time its own matrix products against a library's; the pass has
    the library's.
    """
    server, ours = evidence.kernels(proof.native_root), evidence.kernels(proof.pass_root)
    assert server
    if case.timed:
        assert any(name.startswith("triton_tem_") for name in server - ours)
        assert not any(name.startswith("triton_tem_") for name in ours)
    else:
        assert (sorted(server - ours), sorted(ours - server)) == (sorted(case.beside), [])
    for root in (proof.native_root, proof.pass_root):
        code = evidence.generated(root)
        assert all(word in code for word in case.fused)


def test_a_gpu_executes_what_the_server_would_have_compiled(case: Case, proof: Proof) -> None:
    """Kernel for kernel the same instructions, so service cannot be slower for them: all configurations of each are there."""
    code = proof.machine_code()
    names = sorted({kernel.split()[0] for kernel in code["missing"]})
    assert code["equal"]
    assert code["other"] == []
    if case.timed:
        assert "triton_mm" in names  # and what else was tried for these sizes, to be timed
    else:
        assert names == sorted(case.beside)


def test_the_server_finds_its_other_triton_kernels(case: Case, proof: Proof) -> None:
    """Those that vLLM's warm-up launches are there; what a server compiles beside them is in the figures of its case."""
    assert evidence.own_kernels(proof.ours.before)
    assert proof.compiled_own_kernels() == {} or case.name in OWN_KERNELS_MISSING


def test_the_answers_are_those_of_a_server_that_compiled_for_itself(proof: Proof) -> None:
    """Greedy answers are equal, or part where two tokens are as good as tied; see evidence.apart."""
    assert all(len(answer["tokens"]) > 1 for answer in proof.ours.answers)
    assert evidence.apart(proof.ours.answers, proof.native.answers) < _TIE


def test_the_figures_are_told(proof: Proof, capsys: pytest.CaptureFixture[str]) -> None:
    """Both logs state vLLM's own times; one JSON line of everything goes to the terminal. No time is judged here."""
    with capsys.disabled():
        print(f"\n{json.dumps(proof.summary())}", flush=True)
    assert all(value is not None for side in (proof.ours, proof.native) for value in side.times().values())
