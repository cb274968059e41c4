"""`warmstart run`: the init container."""

from __future__ import annotations

import argparse

from warmstart import commands
from warmstart.commands import Answer
from warmstart.settings import Settings
from warmstart.workflow.stopping import Stop

USAGE = "[options]"
DESCRIPTION = """\
Find the pod's vLLM container, look its compile cache up in the store, verify and install it; on a miss compile, publish
and install. Whatever fails, the exit code is 0 with the reason in the log, the termination message and the metrics, so
that the server starts, cold if it must; --fail-closed reverses that.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    commands.add_settings(
        parser,
        *commands.STORE,
        *commands.TRUST,
        "signing_key",
        "claims",
        "claim_ttl",
        *commands.SERVER,
        "pod_name",
        "pod_namespace",
    )
    commands.add_settings(
        parser, "cache_root", "work_dir", "on_miss", "cuda_stub", "jobs", "deadline", "fail_closed", *commands.TELLING
    )


def execute(args: argparse.Namespace, settings: Settings, stop: Stop) -> Answer:  # noqa: ARG001
    """Run the command."""
    from warmstart.workflow import run

    ending = run.run(settings, stop)
    commands.tell(ending.result, settings)
    return Answer(ending.result.document(), ending.result.text(), failure=ending.failure)
