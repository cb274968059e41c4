"""`warmstart push`: publish a cache folder by hand."""

from __future__ import annotations

import argparse

from warmstart import commands
from warmstart.commands import Answer
from warmstart.settings import Settings
from warmstart.workflow.stopping import Stop

USAGE = "-f SPEC [options]"
DESCRIPTION = """\
Publish the compile cache in a cache root under the key of a pod spec. Use it for what the compile pass refuses: start the
server once, let it compile, and push what it left. Or, with --replace, for what only a GPU can tell: start the server on an
entry, let it choose the fastest kernels, and push what it has with its choices.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    commands.add_settings(
        parser, *commands.STORE, "signing_key", *commands.SERVER, "pod_name", "pod_namespace", "cache_root", "work_dir"
    )
    parser.add_argument(
        "--aot-key",
        metavar="NAME",
        action="append",
        help="folder below torch_aot_compile that belongs to it; default: all; may be repeated",
    )
    parser.add_argument(
        "--replace",
        action="store_true",
        help="take the place of the entry that is there; default: where that has other files, stay beside it, unused",
    )
    commands.add_settings(parser, "deadline", *commands.TELLING)


def execute(args: argparse.Namespace, settings: Settings, stop: Stop) -> Answer:
    """Run the command."""
    from warmstart.workflow import transfer

    result = transfer.push(settings, stop, tuple(args.aot_key or ()), replace=args.replace)
    commands.tell(result, settings)
    return Answer(result.document(), result.text())
