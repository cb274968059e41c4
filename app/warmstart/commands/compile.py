"""`warmstart compile MODEL …`: the compile pass alone."""

from __future__ import annotations

import argparse

from warmstart import commands
from warmstart.commands import Answer
from warmstart.settings import Settings
from warmstart.workflow.stopping import Stop

USAGE = "MODEL [options] [any option of vllm serve]"
DESCRIPTION = """\
Run the compile pass for a model into a cache root, as `vllm serve MODEL …` would fill it. Every option that is not listed here
goes to vLLM's own parser, so write exactly what the server gets.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("model", metavar="MODEL", help="as the server is given it: a hub name or a folder")
    commands.add_settings(
        parser,
        "gpu",
        "gpu_file",
        "model_files",
        "cache_root",
        "work_dir",
        "cuda_stub",
        "device",
        "tuning_memory",
        "jobs",
        "deadline",
        *commands.TELLING,
    )
    # --log-level is an option of vllm serve; ours is WARMSTART_LOG_LEVEL here.
    commands.add_settings(parser, "output", "log_format")


def execute(args: argparse.Namespace, settings: Settings, stop: Stop) -> Answer:
    """Run the command."""
    from warmstart.workflow import compiled

    result = compiled.compile_model(settings, stop, args.model, tuple(args.rest))
    commands.tell(result, settings)
    return Answer(result.document(), result.text())
