"""`warmstart plan`: what a pod spec resolves to."""

from __future__ import annotations

import argparse

from warmstart import commands
from warmstart.commands import Answer
from warmstart.settings import Settings
from warmstart.workflow.stopping import Stop

USAGE = "-f SPEC [options]"
DESCRIPTION = """\
Show what a pod spec resolves to, for each of its vLLM servers and each GPU type it can land on: model, arguments, ranks,
request key, hit or miss, and what the spec leaves open. Compiles nothing and writes nothing.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    commands.add_settings(parser, *commands.STORE, *commands.TRUST, *commands.SERVER, "pod_name", "pod_namespace", "cache_root")
    parser.add_argument("--factors", action="store_true", help="show every factor of the request key")


def execute(args: argparse.Namespace, settings: Settings, stop: Stop) -> Answer:
    """Run the command."""
    from warmstart.workflow import plan

    plans = plan.plan(settings, stop)
    return Answer([one.document(factors=args.factors) for one in plans], "\n\n".join(one.text() for one in plans))
