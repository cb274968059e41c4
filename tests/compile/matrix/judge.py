"""Whether a pass came to what its case says: the right graph, with the passes and kernels of that GPU, and no fallback."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

from tests.compile.matrix.case import Case

from warmstart.compiler import CompileReport
from warmstart.errors import WarmstartError

# Lines of vLLM's log below WARNING that tell of something switched off or taken instead.
FALLBACK = re.compile(r"fall(ing|s)? ?back|fallback|is disabled|disabling|not supported|unsupported", re.IGNORECASE)
# Those that a server with the same arguments logs as well, on its GPU: the case's own choice, or nothing of the graph.
EXPECTED = re.compile(
    r"chunked prefill|prefix caching|asynchronous scheduling|async scheduling|cuda ?graph|custom allreduce|mm processor cache|"
    r"skip_tokenizer_init|SymmMemCommunicator|cascade attention|"
    # Qwen3-Next's heads are interleaved, which the fused kernel does not know; outside the graph.
    r"Triton GDN spec decode path|"
    # What vLLM says of data-parallel experts by themselves: --all2all-backend's default.
    r"DP deployment with no --enable-expert-parallel",
    re.IGNORECASE,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """A line of the table. `status` is pass, refused, nothing or fail; `cpu_seconds` are of the pass without the imports."""

    name: str
    status: str
    why: str = ""
    keys: tuple[str, ...] = ()
    ranks: int = 0
    modules: int = 0
    graphs: int = 0
    bytes: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    passes: dict[str, int] = dataclasses.field(default_factory=dict)
    chosen: tuple[str, ...] = ()
    reads: dict[str, int] = dataclasses.field(default_factory=dict)
    factors: dict[str, str] = dataclasses.field(default_factory=dict)


def of_error(case: Case, error: WarmstartError) -> Result:
    """Return the result of a pass that ended with an error: right only where the case says so."""
    line = f"{type(error).__name__}: {error}"
    kind, _, words = case.refused.partition(": ")
    expected = bool(case.refused) and type(error).__name__ == kind and words in line and "\n" not in line
    return Result(name=case.name, status="refused" if expected else "fail", why=line)


def of_report(case: Case, report: CompileReport, events: list[dict[str, Any]], root: Path, log: str) -> Result:
    """Return the result of a pass that ended well: right where everything holds that the case asks for."""
    written = [module["bytes"] for event in events if event["event"] == "report" for module in event["modules"]]
    codes = generated(root, len(report.ranks))
    wrong = _wrong(case, report, codes, log)
    return Result(
        name=case.name,
        status="fail" if wrong else "nothing" if case.nothing else "pass",
        why="; ".join(wrong) or report.reason,
        keys=report.aot_keys,
        ranks=len(report.ranks),
        modules=report.modules,
        graphs=report.graphs,
        bytes=sum(written),
        seconds=report.seconds,
        passes={name: sum(rank.passes.get(name, 0) for rank in report.ranks) for name in _names(report)},
        chosen=chosen(log),
        reads=dict(report.ranks[0].reads) if report.ranks else {},
        factors=dict(report.ranks[0].factors) if report.ranks else {},
    )


def _wrong(case: Case, report: CompileReport, codes: list[str], log: str) -> list[str]:
    if case.refused:
        return [f"it was to be refused with {case.refused!r}, and was {report.outcome}"]
    if case.nothing:
        good = report.outcome == "nothing-to-compile" and case.nothing in report.reason
        return [] if good else [f"nothing was to be compiled ({case.nothing}): {report.outcome} {report.reason}"]
    if report.outcome != "compiled":
        return [f"{report.outcome}: {report.reason}"]
    wrong = []
    if len(report.ranks) != case.ranks:
        wrong.append(f"{case.ranks} ranks were expected, {len(report.ranks)} reported")
    for rank in report.ranks:
        if rank.modules_saved != case.modules:
            wrong.append(f"rank {rank.rank} saved {rank.modules_saved} modules, {case.modules} were expected")
        wrong += [f"no match of {name} on rank {rank.rank}" for name in case.passes if not rank.passes.get(name)]
    wrong += [f"the log does not say {text!r}" for text in case.log if not re.search(text, log)]
    for rank, code in enumerate(codes):
        holds = (*case.code, *case.operators)
        wrong += [f"the code of rank {rank} does not hold {text!r}" for text in holds if not re.search(text, code)]
        wrong += [f"there is {text!r} in the code of rank {rank}" for text in case.never if re.search(text, code)]
    wrong += [f"the log says {text!r}" for text in case.never if re.search(text, log)]
    return [*wrong, *(f"the log says: {line}" for line in fallbacks(log))]


def generated(root: Path, ranks: int) -> list[str]:
    """Return the code that Inductor generated under a cache root, by rank: each names its device."""
    texts = [path.read_text() for path in sorted(root.glob("torch_compile_cache/**/*.py"))]
    if ranks == 1:
        return ["\n".join(texts)]
    return ["\n".join(text for text in texts if re.search(rf"cuda:{rank}\b|index={rank}\b", text)) for rank in range(ranks)]


def fallbacks(log: str) -> list[str]:
    """Return the log's lines about something that was switched off or taken instead."""
    lines = [re.sub(r"^.*?\] ", "", line) for line in log.splitlines() if "INFO" in line]
    return list(dict.fromkeys(line for line in lines if FALLBACK.search(line) and not EXPECTED.search(line)))


_CHOICES = (
    r"Using ([A-Z0-9_]+) attention backend",
    r"Using AttentionBackendEnum\.([A-Z0-9_]+) backend",
    r"Using '?([A-Za-z0-9_]+)'? .*?MoE backend",
    r"Selected ([A-Za-z0-9]+(?:Kernel)?) for ",
    r"Using ([A-Za-z0-9]+) for ([A-Za-z0-9]+)",
    r"Using ([A-Za-z0-9_ ()-]+) kernel",
)


def chosen(log: str) -> tuple[str, ...]:
    """Return what vLLM says it chose: attention backends, MoE backends, linear kernels."""
    lines = [line for line in log.splitlines() if "INFO" in line]
    names = [match.group(1) for line in lines for pattern in _CHOICES if (match := re.search(pattern, line))]
    return tuple(dict.fromkeys(names))


def _names(report: CompileReport) -> list[str]:
    return sorted({name for rank in report.ranks for name in rank.passes})
