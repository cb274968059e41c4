"""The sub-commands, one file each: `configure` declares the options, `execute` calls a workflow and gives an `Answer`.

A file is imported only when its command is called, and it imports its workflow only when it executes, so that no command
pays for another. Settings become options through `add_settings`, which takes names, defaults and help from `settings.py`.
"""

from __future__ import annotations

import argparse
import importlib
from typing import TYPE_CHECKING, Any, Protocol

from warmstart import settings as configuration
from warmstart.settings import Settings
from warmstart.value import Value
from warmstart.workflow.stopping import Stop

if TYPE_CHECKING:
    from warmstart.report import Result

REPORTING = ("output", "log_level", "log_format")
STORE = ("store", "store_options", "store_timeout")
TRUST = ("trusted_keys", "require_signature")
CLAIMS = ("claims", "claim_ttl", "pod_namespace")
SERVER = ("pod_spec", "container", "gpu", "gpu_file", "model_files", "code_file", "image_mismatch")
TELLING = ("termination_log", "metrics_textfile", "pushgateway")

# Group of `warmstart --help` → command → what it does, in one line.
GROUPS: dict[str, dict[str, str]] = {
    "In a pod": {
        "run": "the init container: install the pod's compile cache, or compile and publish it; never blocks the server",
        "verify": "after the server's start: whether it used the installed cache, and if not, why",
    },
    "Ahead of time": {
        "plan": "what a pod spec resolves to: model, arguments, GPU, key, and whether the store has it",
        "precompile": "compile and publish for a pod spec, for each GPU type asked: what a Job runs",
        "compile": "the compile pass alone, into a cache folder: warmstart compile MODEL [any vllm serve option]",
        "job": "print the Kubernetes Job that precompiles for a pod spec",
        "prewarm": "create the Jobs that are missing for all opted-in workloads of a cluster",
    },
    "Entries by hand": {
        "pull": "install an entry from the store",
        "push": "publish the cache of a folder",
        "explain": "why two keys differ, factor by factor",
        "store": "look after a store: ls, du, verify, gc, rm, keygen",
        "gpus": "the GPU types known, or describe the GPU of this machine",
    },
}

# Commands whose first argument is a model and whose unknown options go to vLLM's parser, as `args.rest`.
PASS_THROUGH = frozenset({"compile"})
# Commands that take nothing but settings: where none is given as an option, there is nothing to parse.
ALL_SET = frozenset({"run"})
# Commands that print a manifest for another program, which must not be handed an error in its place.
MANIFESTS = frozenset({"job"})
# Seconds that a command may take where the settings say nothing; an init container must not wait for ever.
DEADLINES = {"run": 900.0}


class Answer(Value):
    """What a command says: a JSON value, the same for people, and how it ended.

    `failure` is an error that the answer tells of already, so that only its exit code is still to come of it.
    """

    document: Any
    text: str
    code: int = 0
    failure: BaseException | None = None


class Command(Protocol):
    """What a file of this package holds."""

    USAGE: str
    DESCRIPTION: str

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Declare the command's options."""

    def execute(self, args: argparse.Namespace, settings: Settings, stop: Stop) -> Answer:
        """Run the command."""


def tell(result: Result, settings: Settings) -> None:
    """Tell a result to the log, the termination message and the metrics that the settings name."""
    from warmstart import report

    report.publish(result, termination_log=settings.termination_log)
    if settings.metrics_textfile or settings.pushgateway:
        from warmstart import metrics

        metrics.deliver(result, settings.metrics_textfile, settings.pushgateway)


def load(name: str) -> Command:
    """Import the file of one command."""
    module: Any = importlib.import_module(f"warmstart.commands.{name}")
    command: Command = module
    return command


def names() -> list[str]:
    """Return the names of all commands, in the order of the help."""
    return [name for commands in GROUPS.values() for name in commands]


def add_settings(parser: argparse.ArgumentParser, *names: str) -> None:
    """Declare settings as options of `parser`, grouped as docs/environment.md groups them."""
    groups = {str(group.title): group for group in parser._action_groups}
    for name in names:
        field = configuration.fields()[name]
        meta = field.metadata
        if meta["group"] not in groups:
            groups[meta["group"]] = parser.add_argument_group(meta["group"])
        group = groups[meta["group"]]
        flags = [configuration.option_name(name)]
        if name == "pod_spec":
            flags = ["-f", "--file", *flags]
        options: dict[str, Any] = {"dest": name, "default": None, "help": _help(name)}
        if meta["read"] is configuration.flag:
            options["action"] = "store_true"
        else:
            words = getattr(meta["read"], "words", ())
            options["metavar"] = "{" + ",".join(words) + "}" if words else name.rpartition("_")[2].upper()
        group.add_argument(*flags, **options)


def _help(name: str) -> str:
    field = configuration.fields()[name]
    default = configuration.default_text(field)
    note = f"{field.metadata['help']} [{configuration.variable(name)}"
    return (note + ("]" if default == "none" else f"; default {default}]")).replace("%", "%%")
