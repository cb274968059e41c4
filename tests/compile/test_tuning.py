"""What a pass with a GPU does where tuning does not fit into its memory: the block is ended here as a GPU would end it."""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Any

import pytest

from warmstart.compiler.device import Device
from warmstart.compiler.seams.base import Bench
from warmstart.gpus import load_catalog

pytestmark = pytest.mark.compile


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.setattr(Device, "tuned", 0)
    monkeypatch.setattr(Device, "left", 0)
    made = Bench(gpu=load_catalog().get("h200"), visible=1, real=True, tuning_bytes=8 << 20)
    yield made
    made.remove()


def installed(bench: Bench, monkeypatch: pytest.MonkeyPatch, ending: BaseException | None) -> Any:
    """Install the seam around a block that ends so; returns a wrapper with one definition, the bundler and the class."""
    from torch._inductor.codegen.wrapper import PythonWrapperCodegen
    from torch._inductor.triton_bundler import TritonBundler
    from torch._inductor.utils import IndentedBuffer

    from warmstart.compiler.seams.tuning import outside_fakes

    def block(wrapper: Any) -> None:
        wrapper.kernel_autotune_defs.splice("raise AssertionError('defined twice')")
        TritonBundler._winners.add("tuned before")  # type: ignore[union-attr]
        if ending is not None:
            raise RuntimeError("Failed to run autotuning code block") from ending

    monkeypatch.setattr(PythonWrapperCodegen, "generate_and_run_autotune_block", block)
    monkeypatch.setattr(TritonBundler, "_winners", set())
    outside_fakes(bench)
    definitions = IndentedBuffer()
    definitions.splice("class async_compile:\n    wait = staticmethod(lambda _scope: None)")
    return types.SimpleNamespace(kernel_autotune_defs=definitions), TritonBundler, PythonWrapperCodegen


def test_a_block_that_does_not_fit_is_only_compiled_and_keeps_every_kernel(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server chooses then, among all configurations: none may be left out for another kernel's having been tuned."""
    import torch

    wrapper, bundler, codegen = installed(bench, monkeypatch, torch.cuda.OutOfMemoryError("8 MiB"))
    codegen.generate_and_run_autotune_block(wrapper)
    assert (Device.tuned, Device.left) == (0, 1)
    assert bundler._winners == set()


def test_a_block_that_fits_is_tuned(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was fastest is what the artifact holds."""
    wrapper, bundler, codegen = installed(bench, monkeypatch, None)
    codegen.generate_and_run_autotune_block(wrapper)
    assert (Device.tuned, Device.left) == (1, 0)
    assert bundler._winners == {"tuned before"}


def test_any_other_end_of_a_block_ends_the_pass(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """An illegal access is no lack of memory."""
    wrapper, _bundler, codegen = installed(bench, monkeypatch, ValueError("illegal memory access"))
    with pytest.raises(RuntimeError, match="autotuning"):
        codegen.generate_and_run_autotune_block(wrapper)


def test_with_a_limit_kernels_are_combined_without_timing(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a pass without a GPU."""
    installed(bench, monkeypatch, None)
    from torch._inductor.scheduler import Scheduler

    assert Scheduler.speedup_by_combo_kernel(None, []) is True


def test_whoever_asks_for_a_stream_gets_the_devices_own(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream that is there already (the default one, a capture's) is named by its ids, and stays itself."""
    import torch

    from warmstart.compiler.seams.tuning import one_stream

    made: list[dict[str, Any]] = []

    def make(_cls: Any, _device: Any = None, _priority: int = 0, **existing: Any) -> None:
        made.append(existing)

    default = types.SimpleNamespace(stream_id=0, device_index=1, device_type=1)
    monkeypatch.setattr(torch.cuda.Stream, "__new__", staticmethod(make))
    monkeypatch.setattr(torch.cuda, "default_stream", lambda _device: default)
    one_stream(bench)
    other = {"stream_id": 7, "device_index": 0, "device_type": 1}
    torch.cuda.Stream("cuda:1", priority=-1)
    torch.cuda.Stream(**other)
    assert made == [vars(default), other]
