"""`warmstart gpus`: the catalog of GPU types."""

from __future__ import annotations

import argparse
import json

from warmstart import commands
from warmstart.commands import Answer
from warmstart.settings import Settings
from warmstart.workflow.stopping import Stop

USAGE = "[ls | describe] [options]"
DESCRIPTION = """\
List the GPU types that can be compiled for and the spellings that name them, or describe the GPU of this machine as an
entry for a file of your own (--gpu-file).
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("action", nargs="?", choices=("ls", "describe"), default="ls", help="ls (the default) or describe")
    commands.add_settings(parser, "gpu_file")


def execute(args: argparse.Namespace, settings: Settings, stop: Stop) -> Answer:  # noqa: ARG001
    """Run the command."""
    from warmstart.workflow import gpus

    if args.action == "describe":
        described = gpus.described()
        return Answer(described, json.dumps(described, indent=2))
    rows = gpus.listing(settings)
    return Answer(rows, gpus.table(rows))
