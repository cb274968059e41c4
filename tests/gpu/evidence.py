"""What a server's log and its cache root tell: plain reading, which needs no GPU and is tested without one."""

from __future__ import annotations

import collections
import dataclasses
import hashlib
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from elftools.elf.elffile import ELFFile

AOT = "torch_compile_cache/torch_aot_compile"
_LOADED = re.compile(r"Directly load AOT compilation from path \S*/torch_aot_compile/([0-9a-f]+)/(rank_\d+_\d+)/model")
_COMPILED = re.compile(r"Compiling a graph for compile range")
_SAVED = re.compile(r"saved AOT compiled function to \S+")
_TOOK = re.compile(r"^(\(\S+ pid=\d+\))?.*torch\.compile took ([\d.]+) s in total", re.MULTILINE)
_INIT = re.compile(r"init engine \(.*\) took ([\d.]+) s")
_KERNEL = re.compile(r"^\w+ = async_compile\.\w+\('(\w+)'", re.MULTILINE)
# Inductor's kernels lie there too, where TRITON_CACHE_DIR is set; their names begin with `triton_`.
_OWN_KERNEL = re.compile(r"triton/([A-Z2-7]{52})/(?!triton_)(\w+)\.cubin")
_GRAPH_KERNEL = re.compile(r"triton/[A-Z2-7]{52}/triton_\w+\.cubin")
# torch_compile_cache/<vLLM's hash>/<rank>/<module>/computation_graph.py: the hash is of paths, too, and left out.
_GRAPH = re.compile(r"torch_compile_cache/[0-9a-f]+/(rank_\d+_\d+/.+)/computation_graph\.py")


@dataclasses.dataclass(frozen=True)
class Started:
    """What the log of a started server says. Seconds are vLLM's own, of the slowest rank, modules of a rank added up."""

    loaded: frozenset[str]
    compiled_graphs: int
    saved: int
    torch_compile_seconds: float | None
    init_engine_seconds: float | None


def read(log: str) -> Started:
    """Read the log of a server that has started."""
    init = [float(seconds) for seconds in _INIT.findall(log)]
    return Started(
        loaded=frozenset(key for key, _rank in _LOADED.findall(log)),
        compiled_graphs=len(_COMPILED.findall(log)),
        saved=len(_SAVED.findall(log)),
        torch_compile_seconds=_compile_seconds(log),
        init_engine_seconds=init[-1] if init else None,
    )


def _compile_seconds(log: str) -> float | None:
    """Return the sum over the modules of a process, of the process that took longest: ranks work side by side."""
    took = collections.defaultdict[str, float](float)
    for process, seconds in _TOOK.findall(log):
        took[process] += float(seconds)
    return round(max(took.values()), 2) if took else None


def listing(root: Path) -> frozenset[str]:
    """Return the paths of all files below a cache root, relative to it."""
    return frozenset(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())


def aot_keys(files: frozenset[str]) -> frozenset[str]:
    """Return the AOT keys of a listing: the folders that vLLM looks its artifacts up in."""
    prefix = f"{AOT}/"
    return frozenset(path.removeprefix(prefix).partition("/")[0] for path in files if path.startswith(prefix))


def unexpected(before: frozenset[str], after: frozenset[str]) -> list[str]:
    """Return files of the compile cache that a start added beside what torch unpacks from the artifacts that were there."""
    unpacked = tuple(f"{AOT}/{key}/inductor_cache/" for key in aot_keys(before))
    new = (path for path in after - before if path.startswith("torch_compile_cache/"))
    return sorted(path for path in new if not path.startswith(unpacked))


def kinds(files: Iterable[str]) -> dict[str, int]:
    """Return how many files there are of each kind: the folder below the root, and the suffix or else the name."""
    paths = [Path(file) for file in files]
    return dict(sorted(collections.Counter(f"{path.parts[0]}: {path.suffix or path.name}" for path in paths).items()))


def own_kernels(files: frozenset[str]) -> dict[str, str]:
    """Return the Triton kernels of a listing that are in no graph, hash to name: those that vLLM launches itself."""
    found = (_OWN_KERNEL.fullmatch(path) for path in files)
    return {match[1]: match[2] for match in found if match}


def graphs(root: Path) -> dict[str, str]:
    """Return each module's graph as vLLM dumps it, by rank and module, without comments and empty lines.

    Comments name source lines. They differ where a weight is traced as another class than on the server; the graph does not.
    """
    found = {}
    for path in root.glob("torch_compile_cache/*/rank_*/**/computation_graph.py"):
        match = _GRAPH.fullmatch(path.relative_to(root).as_posix())
        if match:
            found[match[1]] = without_comments(path.read_text())
    return found


def without_comments(source: str) -> str:
    """Return a dumped graph without its comment lines and empty lines."""
    lines = (line.rstrip() for line in source.splitlines())
    return "\n".join(line for line in lines if line and not line.lstrip().startswith("#"))


def generated(root: Path) -> str:
    """Return all code that Inductor generated below a cache root."""
    return "\n".join(path.read_text() for path in sorted((root / AOT).glob("*/inductor_cache/**/*.py")))


def kernels(root: Path) -> frozenset[str]:
    """Return the names of the kernels in the code that Inductor generated below a cache root."""
    return frozenset(_KERNEL.findall(generated(root)))


def choices(root: Path) -> dict[str, str]:
    """Return which configuration each tuned kernel of the graphs has below a cache root: its file to Triton's hash of it."""
    files = sorted((root / AOT).glob("*/inductor_cache/**/*.best_config"))
    return {file.stem: str(json.loads(file.read_text())["triton_cache_hash"]) for file in files}


def machine_code(root: Path, files: frozenset[str]) -> dict[str, str]:
    """Return the machine code of the graphs' kernels among `files` of a root: `name hash` to a digest of what a GPU executes.

    Triton's hash is of a kernel's source, its arguments and its options; the code leaves out what a file says of the paths of
    sources.
    """
    paths = (Path(file) for file in sorted(files) if _GRAPH_KERNEL.fullmatch(file))
    return {f"{path.stem} {path.parent.name}": _executed(root / path) for path in paths}


def _executed(cubin: Path) -> str:
    """Return a digest of a file's instructions, its constants and what a launch needs to know."""
    digest = hashlib.sha256()
    with cubin.open("rb") as file:
        for section in ELFFile(file).iter_sections():
            if section.name.startswith((".text", ".nv.constant", ".nv.info", ".nv.shared")):
                digest.update(f"{section.name} {section.data_size}\n".encode() + section.data())
    return digest.hexdigest()[:16]


def apart(ours: list[dict[str, Any]], native: list[dict[str, Any]]) -> float:
    """Return how far greedy answers are apart: the largest difference of log probabilities up to the first other token.

    Kernels that Inductor tunes add up in another order in another configuration, in two starts of the same server, too; then a
    near tie between two tokens may be decided otherwise, and what follows is another text. The tokens at that place count as
    well: were they no near tie, their log probabilities would be far apart.
    """
    largest = 0.0
    for one, other in zip(ours, native, strict=True):
        pairs = zip(one["tokens"], other["tokens"], one["logprobs"], other["logprobs"], strict=True)
        for mine, its, mine_log, its_log in pairs:
            largest = max(largest, abs(mine_log - its_log))
            if mine != its:
                break
    return round(largest, 6)
