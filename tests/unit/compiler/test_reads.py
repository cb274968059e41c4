"""Places where a weight's value is asked for: each is in the installed libraries, has a reason, and unknown ones are named."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path

import pytest

from warmstart.compiler.reads import MARK, READS, Read, known, refuse_baked
from warmstart.errors import UnsupportedError


def functions(path: Path) -> set[str]:
    """Return the qualified names of all functions and classes of a file, as code objects have them."""
    found: set[str] = set()

    def visit(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                found.add(prefix + child.name)
                inner = "." if isinstance(child, ast.ClassDef) else ".<locals>."
                visit(child, prefix + child.name + inner)
            else:
                visit(child, prefix)

    visit(ast.parse(path.read_text()), "")
    return found


@pytest.mark.parametrize("read", READS, ids=lambda read: read.place.rpartition(".")[2])
def test_each_place_is_where_it_says(read: Read) -> None:
    """An answer for a function that upstream has moved would be one that nobody asks for, and the pass would fail instead."""
    module, _, function = read.place.partition(":")
    package = importlib.util.find_spec(module.split(".", 1)[0])
    assert package is not None
    assert package.origin is not None
    path = Path(package.origin).parents[1] / f"{module.replace('.', '/')}.py"
    assert path.is_file(), f"{module} is gone"
    assert not function or any(name.startswith(function) for name in functions(path)), f"{function} is gone from {module}"


# Of other platforms, or asked while the model runs, when no layout depends on it any more.
_ELSEWHERE = (
    "rocm",
    "aiter",
    "rdna",
    "xpu",
    "cpu",
    "fused_moe.experts",
    "marlin_utils_test",
    "deep_gemm_utils",
    "expert_map_manager",
)
_ASKING = ("any", "all", "allclose", "equal")


def branches(tree: ast.Module) -> set[str]:
    """Return the functions of a module in which a condition asks tensors: `if scale.isnan().any()`, `assert torch.equal(…)`."""
    found: set[str] = set()

    def visit(node: ast.AST, name: str) -> None:
        for child in ast.iter_child_nodes(node):
            inner = f"{name}.{child.name}".lstrip(".") if isinstance(child, (ast.FunctionDef, ast.ClassDef)) else name
            if isinstance(child, (ast.If, ast.IfExp, ast.Assert, ast.While)):
                asked = [call.func for call in ast.walk(child.test) if isinstance(call, ast.Call)]
                if any(isinstance(function, ast.Attribute) and function.attr in _ASKING for function in asked):
                    found.add(inner)
            visit(child, inner)

    visit(tree, "")
    return found


@pytest.mark.parametrize("folder", ["layers/quantization", "layers/fused_moe", "kernels"])
def test_no_condition_on_weights_in_vllm_is_unknown(folder: str) -> None:
    """A new one fails here before a user's pass does, by its place."""
    package = importlib.util.find_spec("vllm")
    assert package is not None
    assert package.origin is not None
    root = Path(package.origin).parents[1]
    unknown = []
    for path in sorted((root / "vllm/model_executor" / folder).rglob("*.py")):
        module = ".".join(path.relative_to(root).with_suffix("").parts)
        if not any(word in module for word in _ELSEWHERE):
            unknown += [f"{module}:{name}" for name in branches(ast.parse(path.read_text())) if not known(f"{module}:{name}")]
    assert unknown == []


def test_each_answer_has_its_reason_and_each_refusal_a_way_out() -> None:
    assert all(len(read.why) > 20 for read in READS)
    assert all("--linear-backend" in read.refused for read in READS if read.refused)


def test_a_place_is_known_by_its_file_and_function() -> None:
    assert known("vllm.model_executor.layers.quantization.kv_cache:BaseKVCacheMethod.process_weights_after_loading")
    assert known("vllm.model_executor.models.new:NewModel.load_weights") is None


def test_code_that_holds_a_weights_value_is_refused_by_its_file(tmp_path: Path) -> None:
    """Code keeps numbers of weights in places that compiled code does not read; where it did, each checkpoint needs its own."""
    plain, baked = tmp_path / "plain.py", tmp_path / "baked.py"
    plain.write_text("scale = 1.0")
    baked.write_text(f"tmp0 = tl.full([1], {MARK}, tl.float32)")
    refuse_baked([plain])
    with pytest.raises(UnsupportedError, match=r"value of a weight as a constant \(baked\.py\)"):
        refuse_baked([plain, baked])
