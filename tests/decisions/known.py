"""The answers in known.toml, and docs/decisions.md made of them."""

from __future__ import annotations

import dataclasses
import tomllib
from pathlib import Path

ANSWERS = {
    "catalog": "From the GPU's entry in the catalog",
    "image": "From the image, which the key holds",
    "request": "From the server's own arguments, environment and GPU count, which the key holds",
    "nothing": "Nothing that is compiled depends on it",
}
KINDS = {
    "device": "the device or the platform",
    "package": "installed packages",
    "environment": "environment variables",
    "machine": "the machine",
}
DOCUMENT = Path(__file__).parents[2] / "docs" / "decisions.md"


@dataclasses.dataclass(frozen=True)
class Known:
    """Names of one kind that are answered in one way."""

    kind: str
    answer: str
    how: str
    names: tuple[str, ...]

    @property
    def lines(self) -> tuple[str, ...]:
        """The names as `scan.findings` tells them."""
        return tuple(f"{self.kind} {name}" for name in self.names)


@dataclasses.dataclass(frozen=True)
class Decisions:
    """All of it; `outside` maps paths of vLLM that are not looked at to the reason."""

    outside: dict[str, str]
    known: tuple[Known, ...]

    @classmethod
    def read(cls) -> Decisions:
        """Read known.toml."""
        document = tomllib.loads((Path(__file__).parent / "known.toml").read_text())
        outside = {path: entry["why"] for entry in document["outside"] for path in entry["paths"]}
        known = tuple(Known(**{**entry, "names": tuple(entry["names"])}) for entry in document["known"])
        return cls(outside, known)

    def page(self) -> str:
        """Return docs/decisions.md."""
        parts = [_HEAD]
        for answer, title in ANSWERS.items():
            parts.append(f"\n## {title}\n")
            for known in sorted(
                (known for known in self.known if known.answer == answer), key=lambda known: list(KINDS).index(known.kind)
            ):
                names = ", ".join(f"`{name}`" for name in sorted(known.names))
                parts.append(f"\n**{known.how[0].upper()}{known.how[1:]}** ({KINDS[known.kind]}): {names}.\n")
        parts.append("\n## Not looked at\n\n")
        reasons: dict[str, list[str]] = {}
        for path, why in self.outside.items():
            reasons.setdefault(why, []).append(f"`{path}`")
        parts += [f"- {why}: {', '.join(sorted(paths))}\n" for why, paths in reasons.items()]
        return "".join(parts)


_HEAD = """# Decisions

What vLLM compiles depends on what it finds around it. A pass runs on another machine than the server, so everything that vLLM
asks of its machine is answered from one of three places, and this page lists every such question in the source of vLLM 0.33
that has to do with the model. It is made of tests/decisions/known.toml by `python -m tests.decisions`; tests/decisions reads
the installed vLLM, and fails by name when a question turns up that has no answer here, or when one is gone.

Two kinds of questions have pages of their own: [what a variable of vLLM or torch does to the key](environment.md), and, in
[the compile pass](compile-pass.md), what happens where vLLM asks a weight for its value.
"""
