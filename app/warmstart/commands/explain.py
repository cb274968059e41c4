"""`warmstart explain A B`: why two keys differ."""

from __future__ import annotations

import argparse

from warmstart import commands
from warmstart.commands import Answer
from warmstart.settings import Settings
from warmstart.workflow.stopping import Stop

USAGE = "A B [options]"
DESCRIPTION = """\
Compare two identities factor by factor: old value, new value, the likely cause, and what to change. A and B are each one of: an
entry of the store (request key), a file with an identity (from `plan --factors`), a cache root or cache folder of a server, a
cache_key_factors.json of vLLM, a server's log, or one line of it.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("a", metavar="A")
    parser.add_argument("b", metavar="B")
    commands.add_settings(parser, *commands.STORE, *commands.TRUST)


def execute(args: argparse.Namespace, settings: Settings, stop: Stop) -> Answer:  # noqa: ARG001
    """Run the command."""
    from warmstart.workflow import explaining

    explanation = explaining.compare(settings, args.a, args.b)
    return Answer(explanation.document(), explanation.text())
