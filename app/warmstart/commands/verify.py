"""`warmstart verify`: whether the server used what was installed."""

from __future__ import annotations

import argparse

from warmstart import commands
from warmstart.commands import Answer
from warmstart.settings import Settings
from warmstart.workflow.stopping import Stop

USAGE = "[options]"
DESCRIPTION = """\
Run beside the server after its start. Says whether it loaded the installed cache (used), compiled everything anew (ignored)
or some of it (partly), and which factor differs. Exit code 0 for used, 10 for ignored or partly.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    commands.add_settings(parser, "cache_root", *commands.TELLING)
    parser.add_argument(
        "--server-log", metavar="FILE", help="the server's log, or - for standard input; makes the answer exact"
    )


def execute(args: argparse.Namespace, settings: Settings, stop: Stop) -> Answer:  # noqa: ARG001
    """Run the command."""
    from warmstart.workflow import verifying

    result, code = verifying.verify(settings, args.server_log)
    commands.tell(result, settings)
    return Answer(result.document(), result.text(), code)
