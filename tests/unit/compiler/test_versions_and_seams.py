"""A version that the seams were not made for is refused by name; a seam that finds its place gone says which one it is."""

from __future__ import annotations

import importlib.metadata
import types
from pathlib import Path

import pytest

from warmstart.compiler import CompileRequest, lines, run_pass
from warmstart.compiler.seams.base import ABSENT, Bench, seams_of
from warmstart.errors import SeamError, UnsupportedError, UsageError
from warmstart.gpus import load_catalog


@pytest.fixture
def bench() -> Bench:
    return Bench(gpu=load_catalog().get("h200"), visible=1, versions="vLLM 0.33.0, torch 2.14.0")


@pytest.mark.parametrize(("vllm", "torch"), [("0.34.0", "2.14.0"), ("0.33.1", "2.15.0"), ("0.3.3", "2.14.0")])
def test_another_version_is_refused_by_name_with_what_is_supported(
    monkeypatch: pytest.MonkeyPatch, vllm: str, torch: str
) -> None:
    monkeypatch.setattr(importlib.metadata, "version", {"vllm": vllm, "torch": torch}.__getitem__)
    with pytest.raises(
        UnsupportedError, match=rf"vLLM {vllm} with torch {torch} is not supported; supported: 0\.33\.x with torch 2\.14"
    ):
        lines.installed()


def test_a_place_without_vllm_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    with pytest.raises(UnsupportedError, match="vllm is not installed here"):
        lines.installed()


def test_a_seam_whose_attribute_is_gone_names_itself_the_version_and_the_attribute(bench: Bench) -> None:
    with (
        pytest.raises(SeamError, match=r"seam some\.seam does not fit vLLM 0\.33\.0, torch 2\.14\.0: .* has no gone"),
        bench.named("some.seam"),
    ):
        bench.replace(types.SimpleNamespace(), "gone", 1)


def test_a_seam_whose_module_is_gone_names_itself(bench: Bench) -> None:
    with pytest.raises(SeamError, match=r"seam other does not fit .*: cannot import no_such_module"), bench.named("other"):
        bench.replace("no_such_module.inside", "name", 1)


def test_with_a_gpu_in_sight_nothing_stands_in_for_it() -> None:
    """Drivers, properties and choices by timing are the device's own; weights without data and absent ranks remain."""
    without = {seam.name for seam in seams_of() if seam.fits(real=False)}
    on_device = {seam.name for seam in seams_of() if seam.fits(real=True)}
    assert without - on_device >= {"nvml", "torch.cuda", "triton.driver", "inductor.launchers", "inductor.autotune-block"}
    assert on_device - without == {"tuning.outside-fakes", "tuning.one-stream"}
    assert on_device & without >= {"weights.dummy-values", "world.process-groups", "triton.launch"}


def test_a_pass_on_a_gpu_is_refused_where_none_is_in_sight(tmp_path: Path) -> None:
    """Before anything is started; the line says both ways out."""
    request = CompileRequest(
        model="m", args=(), env={}, gpu=load_catalog().get("h200"), cache_root=tmp_path / "root", device="cuda"
    )
    with pytest.raises(UsageError, match=r"no NVIDIA GPU is in sight; .*--device none"):
        run_pass(request)
    assert not (tmp_path / "root").exists()


def test_a_name_that_a_line_has_not_got_is_left_out_and_any_other_still_fails(bench: Bench) -> None:
    module = types.ModuleType("some.module")
    bench.absent = frozenset({"some.module.newer", "no_such_module"})
    with bench.named("some.seam"):
        assert bench.replace(module, "newer", 1) is ABSENT
        assert bench.replace("no_such_module", "name", 1) is ABSENT
        assert not hasattr(module, "newer")
        with pytest.raises(SeamError, match=r"seam some\.seam does not fit .*: some\.module has no other"):
            bench.replace(module, "other", 1)


def test_everything_replaced_is_put_back_in_reverse(bench: Bench) -> None:
    class Owner:
        name = "first"

        @staticmethod
        def static() -> str:
            return "own"

    class Heir(Owner):
        pass

    bench.replace(Owner, "name", "second")
    bench.replace(Owner, "name", "third")
    bench.replace(Heir, "static", staticmethod(lambda: "replaced"))
    assert (Owner.name, Heir.static(), Owner.static()) == ("third", "replaced", "own")
    bench.remove()
    assert (Owner.name, Heir.static()) == ("first", "own")
    assert "static" not in vars(Heir)
