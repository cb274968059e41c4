"""The words of a script are the words that real shells make of it."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from warmstart.podspec import shell
from warmstart.podspec.environment import Environment
from warmstart.podspec.shell_syntax import NeedsShell, parse
from warmstart.podspec.unknowns import Unknowns

SHELLS = [path for path in map(shutil.which, ("bash", "dash")) if path] or ["/bin/sh"]
VALUES = {"A": "1", "B": "two words", "EMPTY": "", "J": '{"a": 1}', "S": " lead and trail ", "N": "x\ny"}
POSITIONAL = ("p1", "p 2", "")
PLAIN = st.text(alphabet="ab1-=.:/,@%+_", min_size=1, max_size=4)
INSIDE = st.text(alphabet="ab1 -={}[]*?~#;&|<>()!\t'", max_size=5)
SINGLE = st.text(alphabet='ab1 ${}*\\"`#;&\n', max_size=5).map(lambda text: f"'{text}'")
NAMES = st.sampled_from([*VALUES, "UNSET"])
PARAMETERS = st.one_of(
    NAMES.map(lambda name: f"${{{name}}}"),
    st.builds(lambda name, op, other: f"${{{name}{op}{other}}}", NAMES, st.sampled_from([":-", "-", ":+", "+"]), PLAIN),
    st.builds(
        lambda name, op, other: f"${{{name}{op}{other}}}",
        NAMES,
        st.sampled_from([":-", "-"]),
        st.sampled_from(["a b", "$A", "'q r'"]),
    ),
    st.sampled_from(["$A ", "$B ", "$1", "${2}", "$3"]),
)
DOUBLE = st.lists(
    st.one_of(INSIDE, PARAMETERS.filter(lambda text: "'" not in text), st.sampled_from(['\\"', "\\\\", "\\$", "\\a"])),
    max_size=4,
).map(lambda pieces: '"' + "".join(pieces) + '"')
ESCAPED = st.sampled_from(["\\ ", "\\'", '\\"', "\\$A", "\\\\", "\\*", "\\;", "\\{"])
WORDS = st.lists(
    st.one_of(PLAIN, SINGLE, DOUBLE, PARAMETERS, ESCAPED, st.sampled_from(['"$@"', "$@", '"$*"', '""', "''"])),
    min_size=1,
    max_size=4,
).map("".join)
SCRIPTS = st.lists(WORDS, max_size=5).map(" ".join)


def ours(script: str) -> list[str]:
    """Return the words after the first command's name."""
    scope = shell.Scope(Environment(dict(VALUES), Unknowns()), {}, POSITIONAL)
    (command,) = parse(f"show {script}")
    return shell.words(command, scope)[1:]


def theirs(program: str, script: str) -> list[str]:
    """Return the words that a real shell hands to a command."""
    done = subprocess.run(
        [program, "-fc", f"printf '<%s>\\0' begin {script}", "sh", *POSITIONAL],
        check=True, capture_output=True, env=VALUES, timeout=20,
    )  # fmt: skip
    return [word[1:-1].decode() for word in done.stdout.split(b"\0")[1:-1]]


@settings(max_examples=250, deadline=None)
@given(script=SCRIPTS)
@example(script='"$@" \'\' "" $EMPTY "$EMPTY" a$B"c"$S\'d\'')
@example(script='--x "{\\"a\\": \\"$A\\"}" ${UNSET:-a b}${B}')
def test_words_are_those_of_a_real_shell(script: str) -> None:
    """Quoting, splitting, defaults and positional words, wherever the shells at hand agree."""
    try:
        found = ours(script)
    except NeedsShell:
        return
    real = [theirs(program, script) for program in SHELLS]
    assume(all(words == real[0] for words in real))
    assert found == real[0]


@pytest.mark.parametrize("program", SHELLS)
@pytest.mark.parametrize(
    "script",
    [
        "X=1; show $X",
        "X=1 show $A",
        "X='a b'\nshow $X \"$X\"",
        "export X=1 && show $X",
        'X=$B; Y="$X"; show "$Y"',
        "unset A; show ${A:-gone}",
        "true && \\\n show a",
        "show a >/dev/null 2>&1; show b",
        "show a#b #c",
        "cd /; show a",
        "! show a",
        "show ~/x",
        "show a ; # end",
        ": ${Z:=z}; show $Z",
    ],
)
def test_assignments_and_lists_are_those_of_a_real_shell(program: str, script: str) -> None:
    """The last `show` gets the words that a real shell gives it."""
    scope = shell.Scope(Environment(dict(VALUES, HOME="/h"), Unknowns()), {}, ())
    words: list[str] = []
    for command in parse(script):
        if not command.words:
            shell.assign(command, scope, certain=True)
            continue
        words = shell.words(command, scope)
        if words[0] == "export":
            shell.declare(command.words[1:], scope, certain=True)
        elif words[0] == "unset":
            scope.unset(words[1])
    done = subprocess.run(
        [program, "-c", f'show() {{ OUT=""; for w in "$@"; do OUT="$OUT<$w>"; done; }}\n{script}\nprintf %s "$OUT"'],
        check=True, capture_output=True, text=True, env=VALUES | {"HOME": "/h"}, timeout=20,
    )  # fmt: skip
    assert "".join(f"<{word}>" for word in words[1:]) == done.stdout


@settings(max_examples=300, deadline=None)
@given(script=st.text(alphabet="ab$(){}[]'\"\\`|&;<>\n #~*?=-:+@1", max_size=40))
def test_no_text_brings_the_parser_down(script: str) -> None:
    """Any text is parsed or refused by name."""
    try:
        commands = parse(script)
    except NeedsShell:
        return
    scope = shell.Scope(Environment(dict(VALUES), Unknowns()), {}, POSITIONAL)
    for command in commands:
        try:
            shell.words(command, scope)
        except NeedsShell:
            return
