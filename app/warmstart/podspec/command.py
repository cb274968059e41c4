"""A container's command line → the vLLM server that it starts, whatever stands in front of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

from warmstart.errors import SpecError, shorten
from warmstart.podspec import shell
from warmstart.podspec.environment import Environment
from warmstart.podspec.shell_syntax import Command, NeedsShell, parse
from warmstart.value import Value

SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh", "ksh"})
MODULES = {
    "vllm.entrypoints.openai.api_server": False,
    "vllm.entrypoints.launchers.api_server.entry": False,
    "vllm.entrypoints.cli.main": True,
}
"""Python modules that start a server, and whether the word `serve` must follow."""
WRAPPERS = frozenset(
    [
        "tini",
        "dumb-init",
        "catatonit",
        "numactl",
        "taskset",
        "nice",
        "ionice",
        "chrt",
        "stdbuf",
        "setsid",
        "nohup",
        "time",
        "timeout",
        "nsys",
        "ncu",
        "ddtrace-run",
        "opentelemetry-instrument",
        "setpriv",
        "gosu",
        "su-exec",
        "unshare",
        "strace",
        "ltrace",
        "uv",
    ]
)
"""Programs that start another one, named in their own arguments, and change nothing that vLLM compiles."""
_QUIET = frozenset(
    [
        ":",
        "true",
        "false",
        "echo",
        "printf",
        "test",
        "[",
        "sleep",
        "mkdir",
        "cd",
        "pwd",
        "ls",
        "cat",
        "date",
        "id",
        "whoami",
        "hostname",
        "which",
        "type",
        "env",
        "printenv",
        "set",
        "ulimit",
        "umask",
        "trap",
        "wait",
        "nvidia-smi",
        "chmod",
        "df",
        "free",
        "uname",
        "ray",
        "curl",
        "wget",
        "hf",
        "huggingface-cli",
        "nc",
        "ping",
        "getent",
        "ip",
        "ifconfig",
        "ibstat",
        "touch",
        "tee",
        "head",
        "tail",
        "grep",
        "awk",
        "unset",
    ]
)
"""Commands that a script may run before vLLM without changing what vLLM compiles."""
_NUMBERED = ("python", "pypy")


class Invocation(Value):
    """A vLLM server's arguments, and the environment it starts in. `serve` is false for the module `api_server`."""

    serve: bool
    args: tuple[str, ...]
    environment: Environment


def interpret(words: Sequence[str], environment: Environment) -> Invocation | None:
    """Return the vLLM server that a command line starts, None where it starts something else.

    Raises SpecError: vLLM is in it, but behind something that needs a shell to be known, or more than once.
    """
    try:
        return _interpret(list(words), environment)
    except NeedsShell as error:
        raise SpecError(
            f"the container's script needs a shell to be understood: {shorten(error, 200)}",
            hint="start vLLM with plain arguments, or give the rendered command",
        ) from None
    except RecursionError:
        raise SpecError("the container's script is nested too deep") from None


def mentions_vllm(words: Sequence[str]) -> bool:
    """Say whether a command line has to do with vLLM at all."""
    return any("vllm" in word for word in words)


def _interpret(words: list[str], environment: Environment) -> Invocation | None:
    while words:
        program = PurePosixPath(words[0]).name
        if program == "env":
            words, environment = _env(words[1:], environment)
        elif program in SHELLS:
            return _shell(words[1:], environment)
        elif program in WRAPPERS:
            words = _wrapped(words)
        else:
            break
    if not words:
        return None
    program = PurePosixPath(words[0]).name
    if program.rstrip("0123456789.") in _NUMBERED:
        return _python(words[1:], environment)
    if program == "vllm":
        return Invocation(True, tuple(words[2:]), environment) if words[1:2] == ["serve"] else None
    return None


def _wrapped(words: list[str]) -> list[str]:
    """Return the words from the program on that a wrapper starts: its own options are not known, what it may start is."""
    for i in range(1, len(words)):
        program = PurePosixPath(words[i]).name
        is_python = program.rstrip("0123456789.") in _NUMBERED
        if program in SHELLS or program in WRAPPERS or program in ("env", "vllm") or is_python:
            return words[i:]
    return []


def _python(words: list[str], environment: Environment) -> Invocation | None:
    while words and words[0].startswith("-") and words[0] != "-m":
        if words[0].startswith("-m"):
            words[0:1] = ["-m", words[0][2:]]
        elif words[0] in ("-W", "-X"):
            words = words[2:]
        elif words[0].endswith("m") and not words[0].startswith("--"):
            words[0] = "-m"  # flags joined with it: `python -um module`
        elif words[0] == "-c":
            return None
        else:
            words = words[1:]
    if words[:1] == ["-m"]:
        module = words[1] if len(words) > 1 else ""
        words = words[2:]
    else:
        script = words[0] if words else ""
        if PurePosixPath(script).name == "vllm":
            return _interpret(["vllm", *words[1:]], environment)
        dotted = "." + script.removesuffix(".py").replace("/", ".")
        module = next((known for known in MODULES if dotted.endswith(f".{known}")), "")
        words = words[1:]
    if module not in MODULES:
        return None
    if MODULES[module]:
        return Invocation(True, tuple(words[1:]), environment) if words[:1] == ["serve"] else None
    return Invocation(False, tuple(words), environment)


def _env(words: list[str], environment: Environment) -> tuple[list[str], Environment]:
    """Carry out `env [-i] [-u NAME] [NAME=VALUE …] program …`."""
    environment = environment.copy()
    while words:
        word = words[0]
        if word in ("-i", "-", "--ignore-environment"):
            environment.variables.clear()
        elif word in ("-u", "--unset") and len(words) > 1:
            environment.variables.pop(words.pop(1), None)
        elif word.startswith("--unset="):
            environment.variables.pop(word.partition("=")[2], None)
        elif word in ("-C", "--chdir") and len(words) > 1:
            words.pop(1)
        elif word in ("-S", "--split-string") or word.startswith(("-S", "--split-string=")):
            raise NeedsShell("`env -S`")
        elif word == "--":
            words = words[1:]
            break
        elif not word.startswith("-") and "=" in word:
            name, _, value = word.partition("=")
            environment.variables[name] = value
        elif not word.startswith("-"):
            break
        words = words[1:]
    return words, environment


def _shell(words: list[str], environment: Environment) -> Invocation | None:
    """Follow `sh -c SCRIPT [name [word …]]`; a script in a file cannot be read here."""
    takes_script = False
    while words and words[0][:1] in ("-", "+") and len(words[0]) > 1:
        option, words = words[0], words[1:]
        if option == "--":
            break
        if option.startswith("--"):
            continue
        takes_script |= "c" in option
        if option.endswith("o"):  # `-o pipefail`, `-euo pipefail`
            words = words[1:]
        if "a" in option and option.startswith("-"):
            raise NeedsShell("`-a` (every variable is exported)")
    if not words:
        return None
    if not takes_script:
        if mentions_vllm(words):
            raise SpecError(
                f"the container runs the script file {shorten(words[0], 80)!r}, which the spec does not hold",
                hint="start vLLM with plain arguments",
            )
        return None
    script, positional = words[0], tuple(words[2:])
    scope = shell.Scope(environment.copy(), {}, positional)
    try:
        commands = parse(script)
        return _script(commands, scope)
    except NeedsShell:
        if mentions_vllm([script, *positional]):
            raise
        return None


def _script(commands: list[Command], scope: shell.Scope) -> Invocation | None:
    """Run a script's commands as far as they can be known, up to the one that starts vLLM; it must be the only one."""
    found: Invocation | None = None
    for position, command in enumerate(commands):
        if found is not None:
            if _starts_another(command, scope):
                raise SpecError("the container's script starts vLLM more than once", hint="one server for each container")
            continue
        found = _run(command, scope, certain=_is_certain(commands, position))
    return found


def _starts_another(command: Command, scope: shell.Scope) -> bool:
    """Say whether a command after the server starts vLLM too; whatever else it does no longer matters."""
    environment = Environment(dict(scope.environment.variables), scope.environment.unknowns)
    try:
        return _run(command, shell.Scope(environment, dict(scope.own), scope.positional), certain=False) is not None
    except NeedsShell:
        return False


def _is_certain(commands: list[Command], position: int) -> bool:
    """Say whether a command runs whenever vLLM is reached: nothing that can fail decides it alone."""
    start = position
    while start > 0 and commands[start].before in ("&&", "||"):
        start -= 1
    end = position + 1
    while end < len(commands) and commands[end].before in ("&&", "||"):
        end += 1
    chain = commands[start:end]
    if position == start:
        return True
    before = chain[: position - start]
    if all(not command.words or _name(command) in ("export", "set", "cd", "echo", ":", "true", "mkdir") for command in before):
        return all(command.before != "||" for command in chain[1 : position - start + 1])
    joined = all(command.before == "&&" for command in chain[1:])
    return joined and any("vllm" in _name(command) or _mentions(command) for command in chain[position - start + 1 :])


def _mentions(command: Command) -> bool:
    return any(getattr(part, "text", "") and "vllm" in part.text for word in command.words for part in word)  # type: ignore[union-attr]


def _name(command: Command) -> str:
    return "".join(getattr(part, "text", "") for part in command.words[0]) if command.words else ""


def _run(command: Command, scope: shell.Scope, *, certain: bool) -> Invocation | None:
    name = _name(command)
    if not command.words:
        shell.assign(command, scope, certain=certain)
        return None
    if name in ("export", "readonly"):
        shell.declare(command.words[1:], scope, certain=certain)
        return None
    inner = shell.Scope(scope.environment.copy(), dict(scope.own), scope.positional)
    words = shell.words(command, scope)
    shell.assign(command, inner, certain=True, export=True)
    if words[:1] in (["exec"], ["command"], ["builtin"]):
        words = words[3:] if words[1:2] == ["-a"] else words[1:]
        while words[:1] in (["-c"], ["-l"], ["--"]):
            words = words[1:]
    if not words or words[0].startswith("-"):  # `exec >log`, `command -v vllm`
        return None
    _builtin(words, scope)
    found = _interpret(words, inner.environment)
    if found is None:
        _note(words, scope)
    return found


def _builtin(words: list[str], scope: shell.Scope) -> None:
    """Carry out, or refuse, what changes the shell itself."""
    if words[0] == "unset":
        for name in words[1:]:
            scope.unset(name)
    elif words[0] == "set" and any(word == "--" or word in ("-a", "allexport") for word in words[1:]):
        raise NeedsShell(f"`{' '.join(words)}`")
    elif words[0] in ("eval", "declare", "typeset", "local", "read", "shift", "alias", "mapfile", "getopts", "return"):
        raise NeedsShell(f"`{words[0]}`")


def _note(words: list[str], scope: shell.Scope) -> None:
    program = PurePosixPath(words[0]).name
    if program in _QUIET or "multi-node-serving" in " ".join(words[:2]):
        return
    text = scope.environment.unknowns.reveal(" ".join(words))
    scope.environment.note(shorten(text, 80), "runs before vLLM and may change what it loads", compiles=True)
