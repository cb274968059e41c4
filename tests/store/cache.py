"""A made-up cache root with the folders, names and repetition of a real one."""

from __future__ import annotations

import hashlib
import os
import random
from pathlib import Path

from warmstart.archive import Compiled

AOT_KEY = hashlib.sha256(b"aot").hexdigest()
KEY = hashlib.sha256(b"request").hexdigest()


def words(generator: random.Random, size: int) -> bytes:
    """Return text of `size` bytes that compresses about as well as generated code: few names, many repeats, some noise."""
    names = [f"triton_poi_fused_{generator.randrange(10**6)}" for _ in range(40)]
    lines = [
        f"    buf{generator.randrange(999)} = {generator.choice(names)}(arg{i}, {generator.random():.17f})\n"
        for i in range(200)
    ]
    out = bytearray()
    while len(out) < size:
        out += (generator.choice(lines) if generator.random() < 0.97 else f"# {generator.getrandbits(256):x}\n").encode()
    return bytes(out[:size])


def make_cache(
    root: Path,
    *,
    seed: int = 1,
    ranks: int = 1,
    artifact_bytes: int = 200_000,
    intermediate_bytes: int = 8000,
    aot_key: str = AOT_KEY,
) -> Path:
    """Fill `root` like a compile pass does: what travels, what does not, and times with nanoseconds."""
    generator = random.Random(seed)  # noqa: S311
    compile_cache = root / "torch_compile_cache"
    for rank in range(ranks):
        put(compile_cache / f"torch_aot_compile/{aot_key}/rank_{rank}_0/model", words(generator, artifact_bytes), generator)
        backbone = compile_cache / f"9a8b7c6d5e/rank_{rank}_0/backbone"
        for name in ("cache_key_factors.json", "vllm_compile_cache.py", "computation_graph.py", "transformed_code.py"):
            put(backbone / name, words(generator, 3000), generator)
    for number in range(12):
        folder = compile_cache / f"torch_aot_compile/{aot_key}/inductor_cache/{number:02x}"
        put(folder / f"c{number}.py", words(generator, intermediate_bytes), generator)
    put(root / "modelinfos/vllm-model_executor-models-qwen3-Qwen3ForCausalLM.json", words(generator, 900), generator)
    put(compile_cache / "9a8b7c6d5e/rank_0_0/backbone/x.lock", b"", generator)
    return root


def put(path: Path, data: bytes, generator: random.Random) -> None:
    """Write a file with a modification time that no float can hold."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    time_ns = 1_790_000_000_000_000_000 + generator.randrange(10**15)
    os.utime(path, ns=(time_ns, time_ns))


def facts(
    *, ranks: int = 1, aot_keys: tuple[str, ...] = (AOT_KEY,), vllm: str = "0.33.0", model: str = "Qwen/Qwen3-0.6B"
) -> Compiled:
    """Return what a compile pass would report of `make_cache`."""
    return Compiled(
        model=model,
        gpu="NVIDIA H200",
        vllm=vllm,
        torch="2.14.0",
        aot_keys=aot_keys,
        outcome="compiled",
        ranks=ranks,
        modules=ranks,
        graphs=4 * ranks,
        counters={"modules_found": ranks},
    )


def snapshot(root: Path) -> dict[str, tuple[bytes, int]]:
    """Return every file below `root`, our own folder left out, with its bytes and nanosecond time."""
    files = (path for path in root.rglob("*") if path.is_file() and ".warmstart" not in path.relative_to(root).parts)
    return {str(path.relative_to(root)): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}
