"""`warmstart prewarm`: the Jobs that are missing, for all opted-in workloads of a cluster."""

from __future__ import annotations

import argparse
from pathlib import Path

from warmstart import commands
from warmstart.commands import Answer
from warmstart.settings import Settings, seconds
from warmstart.workflow.stopping import Stop

USAGE = "[options]"
DESCRIPTION = """\
List the opted-in workloads of the cluster and every GPU type that each can land on, ask the store, and create the Jobs that
are missing. Once, or with --watch for as long as it runs.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    commands.add_settings(parser, *commands.STORE, *commands.TRUST, "gpu_file", "model_files", "job_template")
    where = parser.add_argument_group("Where to look")
    where.add_argument("--config", metavar="FILE", type=Path, help="YAML or JSON file with all of this; options go over it")
    where.add_argument("--kubeconfig", metavar="FILE", type=Path, help="the cluster, where this is not a pod of it")
    where.add_argument("--namespace", action="append", metavar="NAME", help="look only here; may be repeated")
    where.add_argument("--selector", metavar="LABELS", help="label selector that opts a workload in")
    where.add_argument(
        "--resource", action="append", metavar="PLURAL.VERSION.GROUP", help="one more kind of workload; may be repeated"
    )
    where.add_argument(
        "--gpu-type",
        action="append",
        metavar="NAME",
        help="GPU type of workloads about which nothing else tells; may be repeated",
    )
    how = parser.add_argument_group("How")
    how.add_argument("--max-jobs", type=int, metavar="N", help="unfinished Jobs at any time, at most")
    how.add_argument("--watch", action="store_true", help="stay and follow changes")
    how.add_argument(
        "--interval", metavar="TIME", type=_seconds, help="with --watch: time between two looks where nothing changes"
    )
    how.add_argument("--dry-run", action="store_true", help="let the API server check the Jobs, and create none")
    commands.add_settings(parser, *commands.TELLING)


def execute(args: argparse.Namespace, settings: Settings, stop: Stop) -> Answer:
    """Run the command."""
    from warmstart.workflow import prewarm

    look = prewarm.main(
        settings,
        stop,
        config=args.config,
        namespaces=tuple(args.namespace) if args.namespace else None,
        selector=args.selector,
        resources=tuple(args.resource) if args.resource else None,
        gpus=tuple(args.gpu_type) if args.gpu_type else None,
        concurrency=args.max_jobs,
        resync_seconds=args.interval,
        kubeconfig=args.kubeconfig,
        watch=args.watch,
        dry_run=args.dry_run,
    )
    return Answer(look.document(), look.text())


def _seconds(text: str) -> float:
    try:
        return seconds(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
