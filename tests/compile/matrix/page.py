"""docs/compatibility.md from the results: `python -m tests.compile.matrix.page` writes it, a test holds it to them."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.compile.matrix import results
from tests.compile.matrix.case import MODELS, Case
from tests.compile.matrix.judge import Result
from tests.compile.matrix.registry import cases
from tests.lines import table as older

from warmstart.compiler.lines import LINES

PAGE = Path(__file__).parents[3] / "docs" / "compatibility.md"
TEMPLATE = Path(__file__).parent / "compatibility.md"
_TOPICS = {
    "models": "Models",
    "features": "Features",
    "parallel": "Parallel layouts",
    "gpus": "GPU types",
    "quantisation": "Quantisation",
}


def page() -> str:
    """Return the page: the hand-written template with the counts and tables in the places it names."""
    known, found = cases(), results.read()
    text = TEMPLATE.read_text()
    text = text.replace("<!-- lines -->", "; ".join(f"{line.vllm}.x with torch {line.torch}.x" for line in LINES))
    text = text.replace("<!-- older lines -->", f"{older.travelled()}\n\n{older.table()}")
    text = text.replace("<!-- counts -->", counts(known, found))
    text = text.replace("<!-- refused -->", refusals(known, found))
    text = text.replace("<!-- failing -->", failing(known, found))
    return text.replace("<!-- tables -->", "\n\n".join(tables(known, found)))


def counts(known: Mapping[str, Case], found: Mapping[str, Result]) -> str:
    """Return a table of how many cases ended how, by topic."""
    lines = ["| | cases | pass | nothing to compile | refused | fail |", "| --- | --- | --- | --- | --- | --- |"]
    total: Counter[str] = Counter()
    for topic, title in _TOPICS.items():
        counted = Counter(found[name].status for name, case in known.items() if case.topic == topic and name in found)
        if counted:
            total += counted
            lines.append(_row(title, counted))
    models = {case.model for name, case in known.items() if name in found and found[name].status == "pass"}
    gpus = {case.gpu for name, case in known.items() if name in found and found[name].status == "pass"}
    lines.append(_row("**all**", total))
    said = f"{len(_architectures(models))} architectures and {len(gpus)} GPU types are among those that pass."
    ours = sum(_refused_here(found[name]) for name in known if name in found)
    share = total["pass"] / (total["pass"] + total["fail"] + ours)
    said += (
        f" Of the others, vLLM itself refuses the server or keeps nothing of it, but for {ours} that only this pass refuses:"
    )
    said += f" {share:.1%} of the servers that leave a cache can have it made ahead."
    waiting = [name for name in known if name not in found]
    if waiting:
        said += f" {len(waiting)} cases were not run on this version yet: {', '.join(waiting)}."
    return "\n".join(lines) + f"\n\n{said}"


def _refused_here(result: Result) -> bool:
    """Tell what the pass refuses from what vLLM refuses, or saves nothing of (its Transformers backend)."""
    return result.why.startswith("UnsupportedError") and "without saving an artifact" not in result.why


def _row(title: str, counted: Counter[str]) -> str:
    numbers = [sum(counted.values()), *(counted[status] for status in ("pass", "nothing", "refused", "fail"))]
    return f"| {title} | {' | '.join(map(str, numbers))} |"


def _architectures(models: Iterable[str]) -> set[str]:
    return {json.loads((MODELS / model / "config.json").read_text())["architectures"][0] for model in models}


def tables(known: Mapping[str, Case], found: Mapping[str, Result]) -> list[str]:
    """Return a table for each topic, of the cases that compile."""
    index = json.loads((MODELS / "index.json").read_text())
    made = []
    for topic, title in _TOPICS.items():
        names = [n for n, case in known.items() if case.topic == topic and n in found and found[n].status == "pass"]
        if names:
            head = "| case | model | GPU | arguments | modules | graphs | MB | CPU s | vLLM chose |\n" + "| --- " * 9 + "|"
            rows = [_pass(known[name], found[name], index[known[name].model]["published"]) for name in names]
            made.append(f"### {title}\n\n" + "\n".join([head, *rows]))
    return made


def _pass(case: Case, result: Result, published: str) -> str:
    fused = [f"{name.removesuffix('_pass')} x{count}" for name, count in result.passes.items() if count]
    modules = f"{result.ranks} x {result.modules // result.ranks}" if result.ranks > 1 else str(result.modules)
    cells = [
        case.name,
        published,
        case.gpu,
        _asked(case),
        modules,
        str(result.graphs),
        f"{result.bytes / 1e6:.1f}",
        f"{result.cpu_seconds:.0f}",
        ", ".join([*result.chosen, *fused]),
    ]
    return f"| {' | '.join(cells)} |"


def _asked(case: Case) -> str:
    words = [f"{name}={value}" for name, value in case.env.items()]
    words += [shlex.quote(word) if " " not in word and "{" not in word else f"'{word}'" for word in case.args]
    return f"`{' '.join(words)}`".replace("|", "\\|") if words else ""


def refusals(known: Mapping[str, Case], found: Mapping[str, Result]) -> str:
    """Return what is refused or compiles nothing, with the words that a user sees."""
    names = [name for name in known if name in found and found[name].status in ("refused", "nothing")]
    head = "| case | GPU | arguments | what is said |\n| --- | --- | --- | --- |"
    rows = [f"| {n} | {known[n].gpu} | {_asked(known[n])} | {_cell(found[n].why)} |" for n in names]
    return "\n".join([head, *rows])


def failing(known: Mapping[str, Case], found: Mapping[str, Result]) -> str:
    """Return the cases that fail, and why."""
    names = [name for name in known if name in found and found[name].status == "fail"]
    if not names:
        return "None."
    head = "| case | model | GPU | arguments | why |\n| --- | --- | --- | --- | --- |"
    rows = [f"| {n} | {known[n].model} | {known[n].gpu} | {_asked(known[n])} | {_cell(found[n].why)} |" for n in names]
    return "\n".join([head, *rows])


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


if __name__ == "__main__":
    PAGE.write_text(page())
