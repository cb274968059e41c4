"""Every warning of vLLM and torch that is not known to be harmless fails the pass with its text."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from warmstart.compiler.warned import HARMLESS, Warned
from warmstart.errors import CompileError


@pytest.fixture
def warned() -> Iterator[Warned]:
    before = logging.getLogRecordFactory()
    listener = Warned()
    listener.install()
    yield listener
    logging.setLogRecordFactory(before)


def test_a_pass_that_switches_itself_off_is_an_error_with_its_text(warned: Warned) -> None:
    logging.getLogger("vllm.compilation.passes.fusion.allreduce_rms_fusion").warning("AllReduce fusion pass is disabled.")
    with pytest.raises(CompileError, match=r"allreduce_rms_fusion: AllReduce fusion pass is disabled"):
        warned.check()


def test_it_is_heard_whatever_the_loggers_handlers_and_propagation(warned: Warned) -> None:
    logger = logging.getLogger("torch._inductor.something")
    logger.propagate, before = False, logger.propagate
    try:
        logger.error("fell back to eager")
    finally:
        logger.propagate = before
    assert warned.texts == ["torch._inductor.something: fell back to eager"]


def test_other_libraries_and_lower_levels_are_not_its_business(warned: Warned) -> None:
    logging.getLogger("urllib3").warning("retrying")
    logging.getLogger("vllm.engine").info("hello")
    warned.check()


def test_several_are_counted(warned: Warned) -> None:
    for text in ("one", "two", "three"):
        logging.getLogger("vllm.x").warning(text)
    with pytest.raises(CompileError, match=r"vllm\.x: one \(and 2 more\)"):
        warned.check()


@pytest.mark.parametrize(
    ("logger", "text"),
    [
        ("vllm.config.model", "Casting torch.bfloat16 to torch.float16."),
        ("vllm.platforms.cuda", "Forcing --disable_chunked_mm_input for models with multimodal-bidirectional attention."),
        ("vllm.utils.flashinfer", "FlashInfer kernels are disabled: flashinfer-cubin is not installed"),
        ("vllm.transformers_utils.config", "Could not retrieve safetensors metadata for a/b (…)."),
        ("vllm.model_executor.model_loader.weight_utils", "--quantization fp8 is deprecated for online quantization"),
    ],
)
def test_what_says_nothing_about_the_graph_is_let_pass(warned: Warned, logger: str, text: str) -> None:
    logging.getLogger(logger).warning(text)
    warned.check()


def test_each_exception_has_its_reason() -> None:
    assert all(len(known.why) > 15 for known in HARMLESS)


def test_a_configuration_that_the_machine_decides_is_not_let_pass(warned: Warned) -> None:
    logging.getLogger("vllm.config.vllm").warning("Model Runner V2 requires Triton; using the V1 model runner instead.")
    with pytest.raises(CompileError, match="requires Triton"):
        warned.check()
