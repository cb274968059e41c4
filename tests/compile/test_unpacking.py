"""What stock torch does with an artifact that arrives in an empty cache folder, of whomever: it unpacks modules there.

So a first start adds files, on a native artifact that was moved just as on ours, and `warmstart verify` without a log takes
them for the sign that the server has loaded it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

pytestmark = pytest.mark.compile


def test_stock_torch_unpacks_one_module_from_an_artifact_and_none_again(tmp_path: Path) -> None:
    """No seam is in place; compiled and serialized as vLLM does it."""
    import torch
    from torch._inductor import standalone_compile
    from torch._inductor.standalone_compile import AOTCompiledArtifact
    from torch._inductor.utils import fresh_cache
    from torch.fx.experimental.proxy_tensor import make_fx

    def modules(cache: Path) -> list[str]:
        return [path.name for path in cache.rglob("*.py")]

    # The library's product: of it no C++ is generated, which would take a compiler.
    example = torch.ones(4, 4)
    graph = make_fx(lambda one: (one @ one,))(example)
    (tmp_path / "native").mkdir()
    (tmp_path / "moved").mkdir()
    with fresh_cache(dir=str(tmp_path / "native"), delete=False):
        compiled = standalone_compile(graph, [example], dynamic_shapes="from_example_inputs", aot=True)
        assert isinstance(compiled, AOTCompiledArtifact)
        artifact = compiled.serialize()
    with fresh_cache(dir=str(tmp_path / "moved"), delete=False):
        for _start in range(2):
            (answer,) = AOTCompiledArtifact.deserialize(artifact)(example)
            assert answer.sum() == 64
            assert len(modules(tmp_path / "moved")) == 1
    assert modules(tmp_path / "moved") == modules(tmp_path / "native")
