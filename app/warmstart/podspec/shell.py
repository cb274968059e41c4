"""The words that a script's simple commands come to, given an environment; and what its assignments do to that environment."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

from warmstart.podspec.environment import Environment
from warmstart.podspec.shell_syntax import Command, Literal, NeedsShell, Opaque, Part, Variable, Word

# Set by the kernel, the container runtime or the image in every container: not set in the spec does not mean empty.
_ALWAYS_SET = frozenset(
    {"HOME", "HOSTNAME", "PATH", "PWD", "USER", "SHELL", "LANG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"}
)
_BLANKS = " \t\n"
_FIELD = re.compile(r"[^ \t\n]+")


@dataclasses.dataclass
class Scope:
    """What a running shell would know: exported variables, its own variables, and the positional words."""

    environment: Environment
    own: dict[str, str]
    positional: tuple[str, ...]

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
    return " ".join(_expand(word, scope, split=False))


def fields(word: Word, scope: Scope) -> list[str]:
    """Return the fields that one word comes to: none, one, or several."""
    return _expand(word, scope, split=True)


def _expand(word: Word, scope: Scope, *, split: bool) -> list[str]:
    done: list[str] = []
    current: str | None = None
    for part in word:
        if isinstance(part, Variable) and part.name in ("@", "*") and not part.operator:
            current = _positional(part, scope, done, current)
            continue
        text, quoted = _text(part, scope)
        if quoted or not split:
            current = (current or "") + text
            continue
        if text[:1] and text[0] in _BLANKS and current is not None:
            done.append(current)
            current = None
        for i, piece in enumerate(_FIELD.findall(text)):
            if i and current is not None:
                done.append(current)
                current = None
            current = (current or "") + piece
        if text[-1:] and text[-1] in _BLANKS and current is not None:
            done.append(current)
            current = None
    return done if current is None else [*done, current]


def _positional(part: Variable, scope: Scope, done: list[str], current: str | None) -> str | None:
    """Add `"$@"` (each word for itself), `"$*"` (joined), or their unquoted forms (split again)."""
    items = list(scope.positional)
    if part.quoted and part.name == "*":
        return (current or "") + " ".join(items)
    if not part.quoted:
        items = [piece for item in items for piece in _FIELD.findall(item)]
    for i, item in enumerate(items):
        if i and current is not None:
            done.append(current)
            current = None
        current = (current or "") + item
    return current


def _text(part: Part, scope: Scope) -> tuple[str, bool]:
    """Return a part's text and whether it is kept from splitting."""
    if isinstance(part, Literal):
        # Unquoted literal text of a word holds no blanks; only the default in `${NAME:-a b}` does, and that is split.
        return part.text, part.quoted
    unknowns = scope.environment.unknowns
    if isinstance(part, Opaque):
        return unknowns.mark(part.source, f"{part.source} is {part.what}, which needs a shell"), True
    return _variable(part, scope)


def _variable(part: Variable, scope: Scope) -> tuple[str, bool]:
    held = _positional_value(part, scope) if part.name.isdigit() or part.name in "@*" else scope.get(part.name)
    operator = part.operator.lstrip(":")
    is_set = held is not None and (held != "" or not part.operator.startswith(":"))
    if held is not None and scope.environment.unknowns.within(held) and operator:
        return scope.environment.unknowns.mark(part.source, f"{part.name} is not known"), True
    if operator == "+":
        return (_joined(part, scope) if is_set else ""), part.quoted
    if is_set:
        return held or "", part.quoted
    if operator in ("-", "="):
        default = _joined(part, scope)
        scope.environment.note(
            part.source, f"{part.name} is not set in the spec; the default {default!r} was taken", compiles=False
        )
        if operator == "=":
            scope.set(part.name, default)
        return default, part.quoted
    if operator == "?":
        raise NeedsShell(f"`{part.source}` ({part.name} is not set in the spec)")
    if held is None and part.name in _ALWAYS_SET:
        return scope.environment.unknowns.mark(part.source, f"{part.name} is set in the container, not in the spec"), True
    if held is None:
        scope.environment.note(
            f"${part.name}", "is not set in the spec; taken as empty, though the image may set it", compiles=True
        )
    return "", part.quoted


def _positional_value(part: Variable, scope: Scope) -> str | None:
    if part.name in ("@", "*"):
        return " ".join(scope.positional) or None
    number = int(part.name)
    if number == 0:
        return "sh"
    return scope.positional[number - 1] if number <= len(scope.positional) else ""


def _joined(part: Variable, scope: Scope) -> str:
    return " ".join(_expand(part.other, scope, split=False))


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
