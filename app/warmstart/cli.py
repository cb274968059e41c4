"""The command line: the one try/except, and the one place that maps errors to exit codes.

Standard output carries the result, one JSON document or text (`--output`), standard error the log. The sub-commands are in
`commands/`; `report.py` knows how results and log lines look.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from warmstart import __version__, commands, errors, log, report
from warmstart.commands import Answer
from warmstart.settings import Settings, unknown_variables, variable
from warmstart.workflow.stopping import DeadlineExceeded, Stop, Stopped, Terminated, interruptible

EXIT_USAGE = 2
EXIT_UNEXPECTED = 70
EXIT_CODES: tuple[tuple[type[BaseException], int], ...] = (
    (errors.UsageError, EXIT_USAGE),
    (errors.AccessDenied, EXIT_USAGE),
    (errors.EntryNotFound, 10),
    (errors.EntryInvalid, 11),
    (errors.CompileError, 12),
    (errors.TemporaryError, 75),
    (DeadlineExceeded, 75),
    (Terminated, 143),
    (KeyboardInterrupt, 130),
)

_SUMMARY = """\
Compile a vLLM model's torch.compile cache without weights or a GPU, and install it before the server starts.
"""
_CODES = """\
exit codes:
  0 done (every fail-open outcome of `run` too)   2 usage or configuration      10 no entry   11 entry invalid or not trusted
  12 compile failed                               70 unexpected, please report  75 temporary, try again   143 terminated
"""


class Parser(argparse.ArgumentParser):
    """An argument parser that raises instead of printing usage and exiting, and takes no abbreviated options."""

    def __init__(self, **options: object) -> None:
        super().__init__(allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter, **options)  # type: ignore[arg-type]

    def error(self, message: str) -> NoReturn:
        """Raise the parser's complaint as a usage error."""
        raise errors.UsageError(f"{self.prog}: {message}", hint=f"see `{self.prog} --help`")


def exit_code(error: BaseException) -> int:
    """Return the exit code that docs/design.md gives for an error."""
    return next((code for kind, code in EXIT_CODES if isinstance(error, kind)), EXIT_UNEXPECTED)


def overview() -> str:
    """Return the text of `warmstart --help`."""
    lines = ["usage: warmstart COMMAND [options]", "", _SUMMARY]
    for group, listed in commands.GROUPS.items():
        lines += [f"{group}:", *(f"  {name:<12}{note}" for name, note in listed.items()), ""]
    lines += ["Every option has an environment variable, WARMSTART_…; `warmstart COMMAND --help` names them.", "", _CODES]
    return "\n".join(lines)


def parse(argv: Sequence[str]) -> tuple[commands.Command, argparse.Namespace]:
    """Return the command that `argv` names and its parsed options."""
    name = argv[0]
    if name not in commands.names():
        raise errors.UsageError(f"warmstart: no command {errors.shorten(name, 40)!r}", hint="see `warmstart --help`")
    command = commands.load(name)
    if len(argv) == 1 and name in commands.ALL_SET:
        return command, argparse.Namespace()
    parser = Parser(prog=f"warmstart {name}", usage=f"warmstart {name} {command.USAGE}", description=command.DESCRIPTION)
    command.configure(parser)
    if name not in commands.PASS_THROUGH:
        commands.add_settings(parser, *commands.REPORTING)
        return command, parser.parse_args(argv[1:])
    if len(argv) > 1 and argv[1].startswith("-") and argv[1] not in {"-h", "--help"}:
        # Whether the word after an unknown option is its value or the model could only be guessed.
        raise errors.UsageError(f"{parser.prog}: the model goes first, before any option", hint=f"see `{parser.prog} --help`")
    args, rest = parser.parse_known_args(argv[1:])
    args.rest = rest
    return command, args


def main(argv: list[str] | None = None) -> int:
    """Run one sub-command and return its exit code."""
    argv = list(sys.argv[1:] if argv is None else argv)
    if not argv or argv[0] in {"-h", "--help", "help"}:
        _print(overview(), end="")
        return 0 if argv else EXIT_USAGE
    if argv[0] in {"-V", "--version", "version"}:
        _print(f"warmstart {__version__}")
        return 0
    call = Call(argv)
    try:
        answer = call.answer()
        _print(answer.text if call.output == "text" else json.dumps(answer.document, ensure_ascii=False))
    except BrokenPipeError:
        # The reader (head, a pager) has left; Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (Exception, KeyboardInterrupt, Stopped) as error:  # noqa: BLE001 the one place that ends every error
        return call.fail(error)
    else:
        return call.code(answer.failure) if answer.failure else answer.code


class Call:
    """One call of the program: what was asked, and how it ends when that fails."""

    def __init__(self, argv: list[str]) -> None:
        self.argv = argv
        self.name = argv[0]
        self.settings: Settings | None = None
        self.output = "json"

    def answer(self) -> Answer:
        """Parse, read the settings, and run the command under its deadline."""
        command, args = parse(self.argv)
        self.settings = settings = Settings.read(os.environ, vars(args))
        self.output = settings.output
        log.start(settings.log_level, settings.log_format)
        for name in unknown_variables(os.environ):
            report.LOG.warning("%s is set, but no such setting exists; see docs/environment.md", name)
        deadline = commands.DEADLINES.get(self.name, 0.0) if settings.deadline is None else settings.deadline
        with interruptible(Stop(deadline), on_stuck=self.fail) as stop:
            return command.execute(args, settings, stop)

    def fail(self, error: BaseException) -> int:
        """Tell an error to everyone who listens, and return the exit code."""
        code = self.code(error)
        result = report.failure(self.name, error)
        if self.settings is None:
            log.start()
        commands.tell(result, self.settings or Settings())
        if exit_code(error) == EXIT_UNEXPECTED:
            report.LOG.debug("traceback", exc_info=error)
        if self.output == "json" and self.name not in commands.MANIFESTS:
            document = {"outcome": result.outcome, "reason": result.reason, "error": result.error, "exit_code": code}
            with contextlib.suppress(OSError):
                _print(json.dumps(document, ensure_ascii=False))
        return code

    def code(self, error: BaseException) -> int:
        """Return the exit code of an error; 0 where the call fails open, which only `run` does, unless it was terminated."""
        opens = self.name == "run" and not self._closed() and not isinstance(error, Terminated | KeyboardInterrupt)
        return 0 if opens else exit_code(error)

    def _closed(self) -> bool:
        if self.settings is not None:
            return self.settings.fail_closed
        # The options could not be read; what was asked for is still in sight.
        return "--fail-closed" in self.argv or os.environ.get(variable("fail_closed"), "").strip().lower() in {
            "1",
            "true",
            "yes",
            "on",
        }


def _print(text: str, end: str = "\n") -> None:
    sys.stdout.write(text + end)
    sys.stdout.flush()
