"""A shell script's text → simple commands, for the part of POSIX shell whose meaning is plain from the text.

What needs a shell to be known (loops, conditions, functions, here-documents, brace expansion) raises `NeedsShell`, which
names it. Substitutions and expansions inside words stay in the tree; `shell.py` decides what can be known of them.
"""

from __future__ import annotations

import re

from warmstart.pattern import pattern
from warmstart.value import Value

_RESERVED = frozenset(
    "if then elif else fi for while until do done case esac { } [[ function select coproc time".split()  # noqa: SIM905
)
_OPERATORS = ("&&", "||", ";;", "|&", ";", "|", "&", "\n")
_NAME = pattern(r"[A-Za-z_][A-Za-z0-9_]*")
_ASSIGNMENT = pattern(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
_REDIRECTION = pattern(r"(?:[0-9]*(?:>>|>\||>&|<&|<>|>|<)|&>>|&>)")
_OPERATION = pattern(r"([A-Za-z_][A-Za-z0-9_]*|[0-9]+|[@*#])(:?[-+?=])(.*)", re.DOTALL)
_BRACKETS = pattern(r"\[[^\s\]]{1,99}\]")
_BARE = pattern(r"[^ \t\n;&|<>()'\"\\$`*?\[~]*")
_INSIDE = pattern(r'[^"\\$`]+')
_PLAIN_NAME = pattern(r"[A-Za-z_][A-Za-z0-9_]*|[0-9]+|[@*]")

_DEEPEST = 40
MOST_COMMANDS = 500
"""More than any container's start script; what is carried out for each command takes time."""


class NeedsShell(Exception):
    """What was found cannot be known without running a shell; the text names it."""


class Literal(Value):
    """Text that stands for itself. `quoted` text makes a word even where it is empty."""

    text: str
    quoted: bool


class Variable(Value):
    """`$NAME`, `${NAME}`, or `${NAME:-other}` with its operator and the other word.

    The names "@" and "*" are the positional list.
    """

    name: str
    operator: str
    other: tuple[Part, ...]
    quoted: bool
    source: str


class Opaque(Value):
    """A piece whose value only a shell can tell, such as `$(hostname -i)` or an unquoted `*`."""

    source: str
    what: str


Part = Literal | Variable | Opaque
Word = tuple[Part, ...]


class Command(Value):
    """One simple command: assignments before it, its words, and the operator that stands before it ("" for the first)."""

    before: str
    assignments: tuple[tuple[str, Word], ...]
    words: tuple[Word, ...]


def parse(script: str) -> list[Command]:
    """Return the simple commands of a script, in order. Raises NeedsShell."""
    return _Reader(script).commands()


class _Reader:
    def __init__(self, script: str) -> None:
        self.text = script
        self.at = 0

    def commands(self) -> list[Command]:
        found: list[Command] = []
        before = ""
        while True:
            assignments, words = self._simple()
            if assignments or words:
                if len(found) == MOST_COMMANDS:
                    raise NeedsShell(f"a script of more than {MOST_COMMANDS} commands")
                found.append(Command(before, assignments, words))
            elif before in ("&&", "||", "|") and self.at >= len(self.text):
                raise NeedsShell(f"a script that ends in {before}")
            if self.at >= len(self.text):
                return found
            operator = next(op for op in _OPERATORS if self.text.startswith(op, self.at))
            self.at += len(operator)
            if operator == ";;":
                raise NeedsShell("`case`")
            if operator == "\n" and not (assignments or words):
                continue  # a line may end after `&&`: the operator before the empty line still stands
            before = ";" if operator == "\n" else operator.rstrip("&") if operator == "|&" else operator

    def _simple(self) -> tuple[tuple[tuple[str, Word], ...], tuple[Word, ...]]:
        assignments: list[tuple[str, Word]] = []
        words: list[Word] = []
        while self._skip_blanks():
            redirection = _REDIRECTION.match(self.text, self.at)
            if redirection is not None:
                self._redirect(redirection.group())
                continue
            if any(self.text.startswith(operator, self.at) for operator in _OPERATORS):
                break
            if self.text[self.at] in "()":
                raise NeedsShell("a subshell or a function")
            raw, word = self._word()
            if not words and _ASSIGNMENT.match(raw):
                name, _, _ = raw.partition("=")
                if name.endswith("+"):
                    raise NeedsShell(f"`{name}=`")
                assignments.append((name, _without(word, len(name) + 1)))
            else:
                if not words and raw in _RESERVED:
                    raise NeedsShell(f"`{raw}`")
                if words or raw != "!":
                    words.append(word)
        return tuple(assignments), tuple(words)

    def _skip_blanks(self) -> bool:
        """Pass blanks, escaped line ends and a comment; say whether something is left."""
        while self.at < len(self.text):
            if self.text[self.at] in " \t":
                self.at += 1
            elif self.text.startswith("\\\n", self.at):
                self.at += 2
            elif self.text[self.at] == "#":
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
            else:
                return True
        return False

    def _redirect(self, operator: str) -> None:
        self.at += len(operator)
        if operator.endswith("<") and self.text.startswith("<", self.at):
            raise NeedsShell("a here-document")
        if self.text.startswith("(", self.at):
            raise NeedsShell("process substitution")
        self._skip_blanks()
        self._word()

    def _word(self) -> tuple[str, Word]:
        """Read one word; return it as it stands and as parts."""
        start = self.at
        parts: list[Part] = []
        while self.at < len(self.text):
            char = self.text[self.at]
            if char in " \t\n;&|<>()":
                break
            parts += self._piece(char)
        raw = self.text[start : self.at]
        if _has_braces(parts):
            raise NeedsShell(f"brace expansion in {raw[:60]!r} (put it in quotes)")
        return raw, tuple(parts)

    def _piece(self, char: str) -> list[Part]:
        if char == "'":
            end = self.text.find("'", self.at + 1)
            if end < 0:
                raise NeedsShell("a quote that is not closed")
            inside, self.at = self.text[self.at + 1 : end], end + 1
            return [Literal(inside, quoted=True)]
        if char == '"':
            return self._double()
        if char == "\\":
            follows = self.text[self.at + 1 : self.at + 2]
            self.at += 2
            return [] if follows == "\n" else [Literal(follows, quoted=True)]
        if char in "$`":
            return [self._dollar(quoted=False)]
        if char in "*?" or (char == "[" and _BRACKETS.match(self.text, self.at)):
            self.at += 1
            return [Opaque(char, "file names that match a pattern")]
        if char == "~" and (self.at == 0 or self.text[self.at - 1] in " \t\n=:;&|"):
            self.at += 1
            return [Variable("HOME", "", (), quoted=True, source="~")]
        # One character at least: a bracket that opens no pattern, a tilde inside a word.
        end = _BARE.match(self.text, self.at + 1).end()  # type: ignore[union-attr]  # it matches the empty text too
        text, self.at = self.text[self.at : end], end
        return [Literal(text, quoted=False)]

    def _double(self) -> list[Part]:
        parts: list[Part] = []
        self.at += 1
        while self.at < len(self.text):
            char = self.text[self.at]
            if char == '"':
                self.at += 1
                return parts or [Literal("", quoted=True)]
            if char == "\\" and self.text[self.at + 1 : self.at + 2] in ("$", "`", '"', "\\", "\n"):
                follows = self.text[self.at + 1]
                self.at += 2
                parts.append(Literal("" if follows == "\n" else follows, quoted=True))
            elif char in "$`":
                parts.append(self._dollar(quoted=True))
            else:
                run = _INSIDE.match(self.text, self.at)
                end = run.end() if run is not None else self.at + 1
                parts.append(Literal(self.text[self.at : end], quoted=True))
                self.at = end
        raise NeedsShell("a quote that is not closed")

    def _dollar(self, *, quoted: bool) -> Part:
        start = self.at
        if self.text[start] == "`":
            end = self.text.find("`", start + 1)
            if end < 0:
                raise NeedsShell("a backquote that is not closed")
            self.at = end + 1
            return Opaque(self.text[start : self.at], "command substitution")
        follows = self.text[start + 1 : start + 2]
        if follows == "(":
            self.at = _closing(self.text, start + 1, "(", ")")
            return Opaque(self.text[start : self.at], "command substitution")
        if follows == "{":
            self.at = _closing(self.text, start + 1, "{", "}")
            return _braced(self.text[start : self.at], quoted)
        if follows in ("'", '"') and not quoted:
            raise NeedsShell(f"$-quoting ($ before {follows})")
        name = _NAME.match(self.text, start + 1)
        if name is not None:
            self.at = name.end()
            return Variable(name.group(), "", (), quoted, f"${name.group()}")
        if follows and (follows in "@*" or follows.isdigit()):
            self.at += 2
            return Variable(follows, "", (), quoted, f"${follows}")
        if follows and follows in "#?$!-":
            self.at += 2
            return Opaque(f"${follows}", "a value of the running shell")
        self.at += 1
        return Literal("$", quoted=quoted)


def _braced(source: str, quoted: bool) -> Part:
    inside = source[2:-1]
    if _PLAIN_NAME.fullmatch(inside):
        return Variable(inside, "", (), quoted, source)
    operation = _OPERATION.fullmatch(inside)
    if operation is None or operation.group(1) == "#":
        return Opaque(source, "an expansion that edits its value")
    name, operator, other = operation.groups()
    return Variable(name, operator, _other(other, quoted), quoted, source)


def _other(text: str, quoted: bool) -> Word:
    """Read the word after an operator in `${NAME:-word}`; blanks in it are kept, to be split later where it is not quoted."""
    reader = _Reader(text)
    parts: list[Part] = []
    while reader.at < len(text):
        char = text[reader.at]
        if char in " \t\n;&|<>()*?[~" or (quoted and char == "'"):
            reader.at += 1
            parts.append(Literal(char, quoted))
        elif char in "$`":
            parts.append(reader._dollar(quoted=quoted))
        else:
            parts += [Literal(p.text, quoted or p.quoted) if isinstance(p, Literal) else p for p in reader._piece(char)]
    return tuple(parts)


def _closing(text: str, start: int, opens: str, closes: str) -> int:
    """Return the position after the bracket that closes the one at `start`, quotes respected."""
    depth = 0
    quote = ""
    at = start
    while at < len(text):
        char = text[at]
        if char == "\\" and quote != "'":
            at += 1
        elif quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char == opens:
            depth += 1
            if depth > _DEEPEST:
                raise NeedsShell("expansions that are nested too deep")
        elif char == closes:
            depth -= 1
            if depth == 0:
                return at + 1
        at += 1
    raise NeedsShell(f"a ${opens} that is not closed")


def _has_braces(parts: list[Part]) -> bool:
    """Say whether unquoted text holds `{a,b}` or `{1..3}`, which some shells expand and others do not."""
    plain = "".join(part.text if isinstance(part, Literal) and not part.quoted else "\0" for part in parts)
    opened = plain.find("{")
    return opened >= 0 and "}" in plain[opened:] and ("," in plain[opened:] or ".." in plain[opened:])


def _without(word: Word, length: int) -> Word:
    """Return the word without its first characters, which are plain text: the `NAME=` of an assignment."""
    head, *rest = word
    assert isinstance(head, Literal)  # noqa: S101 - an assignment's name and `=` cannot be quoted
    return (Literal(head.text[length:], quoted=False), *rest) if len(head.text) > length else tuple(rest)
