"""`warmstart job -f SPEC`: the Job that precompiles for a pod spec."""

from __future__ import annotations

import argparse

from warmstart import commands
from warmstart.commands import Answer
from warmstart.settings import Settings
from warmstart.workflow.stopping import Stop

USAGE = "-f SPEC [options]"
DESCRIPTION = """\
Print the Kubernetes Job that precompiles for a pod spec, one for each GPU type: warmstart job -f deployment.yaml | kubectl
apply -f -
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    commands.add_settings(parser, *commands.STORE, *commands.SERVER, "job_template")
    parser.add_argument("--image", help="image of the Job; default: the server's own image, which then must hold warmstart")
    parser.add_argument("--namespace", help="namespace of the Job; default: the workload's")


def execute(args: argparse.Namespace, settings: Settings, stop: Stop) -> Answer:
    """Run the command."""
    from warmstart.workflow import job

    jobs = job.main(settings, stop, image=args.image, namespace=args.namespace)
    return Answer(jobs.document(), jobs.text())
