"""The words that a script's simple commands come to, given an environment; and what its assignments do to that environment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from warmstart.pattern import pattern
from warmstart.podspec.environment import Environment
from warmstart.podspec.kubelet import LONGEST
from warmstart.podspec.shell_syntax import Command, Literal, NeedsShell, Opaque, Variable, Word

# Set by the kernel, the container runtime or the image in every container: not set in the spec does not mean empty.
_ALWAYS_SET = frozenset(
    {"HOME", "HOSTNAME", "PATH", "PWD", "USER", "SHELL", "LANG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"}
)
_BLANKS = " \t\n"
_PIECES = pattern(r"[ \t\n]+|[^ \t\n]+")


class Scope:
    """What a running shell would know: exported variables, its own variables, and the positional words."""

    def __init__(self, environment: Environment, own: dict[str, str], positional: tuple[str, ...]) -> None:
        self.environment = environment
        self.own = own
        self.positional = positional

    def get(self, name: str) -> str | None:
        """Return a variable's value, which may hold marks, None where it is not set."""
        if name in self.own:
            return self.own[name]
        return self.environment.variables.get(name)

    def set(self, name: str, value: str, *, export: bool = False) -> None:
        """Set a variable; one that is in the environment stays there, as in a shell."""
        if export or name in self.environment.variables:
            self.environment.variables[name] = value
            self.own.pop(name, None)
        else:
            self.own[name] = value

    def unset(self, name: str) -> None:
        """Remove a variable."""
        self.own.pop(name, None)
        self.environment.variables.pop(name, None)


def words(command: Command, scope: Scope) -> list[str]:
    """Return a command's words, expanded and split. Raises NeedsShell."""
    return [field for word in command.words for field in fields(word, scope)]


def value(word: Word, scope: Scope) -> str:
    """Return what an assignment's right side comes to: expanded, not split."""
    return "".join(" " if segment is None else segment.text for segment in _bounded(word, scope))


def fields(word: Word, scope: Scope) -> list[str]:
    """Return the fields that one word comes to: none, one, or several."""
    done: list[str] = []
    current: str | None = None
    for segment in _bounded(word, scope):
        if segment is not None and not segment.splits:
            current = (current or "") + segment.text
            continue
        for piece in [None] if segment is None else _PIECES.findall(segment.text):
            if piece is None or piece[0] in _BLANKS:
                done += [] if current is None else [current]
                current = None
            else:
                current = (current or "") + piece
    return done if current is None else [*done, current]


class _Segment(NamedTuple):
    """A piece of an expanded word; blanks in it part fields where it `splits`."""

    text: str
    splits: bool


def _bounded(word: Word, scope: Scope) -> Iterator[_Segment | None]:
    length = 0
    for segment in _segments(word, scope):
        length += 1 if segment is None else len(segment.text)
        if length > LONGEST:
            raise NeedsShell(f"a word of more than {LONGEST} characters")
        yield segment


def _segments(word: Word, scope: Scope) -> Iterator[_Segment | None]:
    """Yield a word's pieces, expanded, and None where a field ends whatever stands around it (inside `$@`)."""
    for part in word:
        if isinstance(part, Literal):
            # Unquoted text of a word holds no blanks; only the default in `${NAME:-a b}` does, and that is split.
            yield _Segment(part.text, not part.quoted)
        elif isinstance(part, Opaque):
            yield _Segment(
                scope.environment.unknowns.mark(part.source, f"{part.source} is {part.what}, which needs a shell"), False
            )
        elif part.name in ("@", "*") and not part.operator:
            yield from _positional(part, scope)
        else:
            yield from _variable(part, scope)


def _positional(part: Variable, scope: Scope) -> Iterator[_Segment | None]:
    """Yield `"$@"` (each word for itself), `"$*"` (joined), or their unquoted forms (split again)."""
    if part.quoted and part.name == "*":
        yield _Segment(" ".join(scope.positional), False)
        return
    for i, item in enumerate(scope.positional):
        if i:
            yield None
        yield _Segment(item, not part.quoted)


def _variable(part: Variable, scope: Scope) -> Iterator[_Segment | None]:
    environment, splits = scope.environment, not part.quoted
    held = _positional_value(part, scope) if part.name.isdigit() or part.name in "@*" else scope.get(part.name)
    operator = part.operator.lstrip(":")
    is_set = held is not None and (held != "" or not part.operator.startswith(":"))
    if held is not None and operator and environment.unknowns.within(held):
        yield _Segment(environment.unknowns.mark(part.source, f"{part.name} is not known"), False)
    elif operator == "+":
        if is_set:
            yield from _segments(part.other, scope)
        elif part.quoted:
            yield _Segment("", False)
    elif is_set:
        yield _Segment(held or "", splits)
    elif operator in ("-", "="):
        default = value(part.other, scope)
        environment.note(part.source, f"{part.name} is not set in the spec; the default {default!r} was taken", compiles=False)
        if operator == "=":
            scope.set(part.name, default)
            yield _Segment(default, splits)
        else:
            yield from _segments(part.other, scope)
            if part.quoted:
                yield _Segment("", False)
    elif operator == "?":
        raise NeedsShell(f"`{part.source}` ({part.name} is not set in the spec)")
    elif held is None and part.name in _ALWAYS_SET:
        yield _Segment(environment.unknowns.mark(part.source, f"{part.name} is set in the container, not in the spec"), False)
    else:
        if held is None:
            environment.note(
                f"${part.name}", "is not set in the spec; taken as empty, though the image may set it", compiles=True
            )
        yield _Segment("", splits)


def _positional_value(part: Variable, scope: Scope) -> str | None:
    if part.name in ("@", "*"):
        return " ".join(scope.positional) or None
    number = int(part.name)
    if number == 0:
        return "sh"
    return scope.positional[number - 1] if number <= len(scope.positional) else ""


def assign(command: Command, scope: Scope, *, certain: bool, export: bool = False) -> None:
    """Carry out a command's assignments. Where it is not certain that it runs, the variables become unknown."""
    for name, word in command.assignments:
        text = value(word, scope)
        scope.set(name, text if certain else doubtful(name, scope), export=export)


def doubtful(name: str, scope: Scope) -> str:
    """Return a mark for a variable that is set only if some command of the script succeeds, or fails."""
    return scope.environment.unknowns.mark(f"${name}", f"the script sets {name} under a condition")


def declare(arguments: Sequence[Word], scope: Scope, *, certain: bool) -> None:
    """Carry out `export NAME=value NAME …`."""
    for word in arguments:
        # The shells differ on whether the right side of `export A=$B` is split; values with blanks are quoted in practice.
        text = value(word, scope)
        name, equals, right = text.partition("=")
        if name.startswith("-"):
            raise NeedsShell(f"`export {name}`")
        if equals:
            scope.set(name, right if certain else doubtful(name, scope), export=True)
        elif name in scope.own:
            scope.set(name, scope.own[name], export=True)
