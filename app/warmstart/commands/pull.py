"""`warmstart pull`: install an entry by hand."""

from __future__ import annotations

import argparse

from warmstart import commands
from warmstart.commands import Answer
from warmstart.settings import Settings
from warmstart.workflow.stopping import Stop

USAGE = "[KEY | -f SPEC] [options]"
DESCRIPTION = """\
Install an entry of the store into a cache root: the one that a pod spec asks for, or the one of a given key.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("key", nargs="?", help="request key, or the first 8 or more digits of it; left out: the pod spec's")
    commands.add_settings(parser, *commands.STORE, *commands.TRUST, *commands.SERVER, "pod_name", "pod_namespace", "cache_root")
    commands.add_settings(parser, "deadline", *commands.TELLING)


def execute(args: argparse.Namespace, settings: Settings, stop: Stop) -> Answer:
    """Run the command."""
    from warmstart.workflow import transfer

    result = transfer.pull(settings, stop, args.key)
    commands.tell(result, settings)
    return Answer(result.document(), result.text())
