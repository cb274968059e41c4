"""`warmstart precompile`: what a Job runs."""

from __future__ import annotations

import argparse

from warmstart import commands
from warmstart.commands import Answer
from warmstart.settings import Settings
from warmstart.workflow.stopping import Stop

USAGE = "-f SPEC [options]"
DESCRIPTION = """\
Compile for a pod spec and publish, once for each GPU type that the spec or --gpu names. What the store already has is left
as it is. Any failure ends with the error's exit code.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    commands.add_settings(
        parser, *commands.STORE, *commands.TRUST, "signing_key", "claims", "claim_ttl", "pod_namespace", *commands.SERVER
    )
    commands.add_settings(
        parser, "cache_root", "work_dir", "cuda_stub", "device", "tuning_memory", "jobs", "deadline", *commands.TELLING
    )


def execute(args: argparse.Namespace, settings: Settings, stop: Stop) -> Answer:  # noqa: ARG001
    """Run the command."""
    from warmstart.workflow import precompile

    endings = precompile.precompile(settings, stop)
    for ending in endings:
        commands.tell(ending.result, settings)
    failure = next((ending.failure for ending in endings if ending.failure), None)
    results = [ending.result for ending in endings]
    return Answer([one.document() for one in results], "\n".join(one.text() for one in results), failure=failure)
