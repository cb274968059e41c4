"""The fake-tensor compile pass: the only room that imports torch, triton or vllm, and only in its child processes."""

from warmstart.compiler.driver import run_pass
from warmstart.compiler.model import compile_model
from warmstart.compiler.report import CompileReport, CompileRequest, RankReport

__all__ = ["CompileReport", "CompileRequest", "RankReport", "compile_model", "run_pass"]
