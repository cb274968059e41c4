"""`warmstart prewarm`: the Jobs that are missing, for all opted-in workloads of a cluster."""

from __future__ import annotations

import argparse

from warmstart import commands
from warmstart.commands import Answer
from warmstart.settings import Settings
from warmstart.workflow.stopping import Stop

USAGE = "[options]"
DESCRIPTION = """\
List the opted-in workloads of the cluster and every GPU type that each can land on, ask the store, and create the Jobs that
are missing. Once, or with --watch for as long as it runs.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    commands.add_settings(parser, *commands.STORE, *commands.TRUST, "gpu_file", "job_template")
    parser.add_argument("--namespace", action="append", metavar="NAME", help="look only here; may be repeated")
    parser.add_argument("--selector", metavar="LABELS", help="label selector that opts a workload in")
    parser.add_argument(
        "--kind", action="append", metavar="KIND.VERSION.GROUP", help="one more kind that has a pod template; may be repeated"
    )
    parser.add_argument(
        "--gpu-type",
        action="append",
        metavar="NAME",
        help="a GPU type that node pools offer, even at zero nodes; may be repeated",
    )
    parser.add_argument("--max-jobs", type=int, metavar="N", help="unfinished Jobs at any time, at most")
    parser.add_argument("--watch", action="store_true", help="stay and follow changes")
    parser.add_argument("--interval", metavar="TIME", help="with --watch: time between two full looks")
    parser.add_argument("--dry-run", action="store_true", help="say what would be created")
    commands.add_settings(parser, *commands.TELLING)


def execute(args: argparse.Namespace, settings: Settings, stop: Stop) -> Answer:
    """Run the command."""
    from warmstart.workflow import prewarm

    return prewarm.main(settings, stop, args)
