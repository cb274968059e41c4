"""`warmstart store …`: look after a store."""

from __future__ import annotations

import argparse

from warmstart import commands
from warmstart.commands import Answer
from warmstart.errors import UsageError
from warmstart.settings import Settings
from warmstart.workflow.stopping import Stop

USAGE = "{ls,du,verify,gc,rm,keygen} [KEY …] [options]"
DESCRIPTION = """\
Look after a store:
  ls       entries: model, GPU, vLLM, size, age, last used, signed
  du       objects and bytes, and what no entry names
  verify   check every digest and signature (of the keys given, or of all entries)
  gc       show what would be removed by the limits given; with --execute, remove it
  rm       remove the entries of the keys given
  keygen   write a new Ed25519 key pair for signing
"""

EXIT_UNSOUND = 11
ACTIONS = ("ls", "du", "verify", "gc", "rm", "keygen")


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("action", choices=ACTIONS)
    parser.add_argument(
        "names", nargs="*", metavar="KEY", help="verify, rm: request keys; keygen: the file for the private key"
    )
    commands.add_settings(parser, *commands.STORE, *commands.TRUST)
    limits = parser.add_argument_group("Limits of gc")
    limits.add_argument("--older-than", metavar="TIME", help="remove entries not used for longer than this (30d)")
    limits.add_argument("--keep", metavar="N", help="keep at most the N entries used last")
    limits.add_argument("--max-bytes", metavar="SIZE", help="remove the entries used longest ago until the store fits (500GB)")
    limits.add_argument("--vllm", metavar="PATTERN", action="append", help="remove entries of these vLLM versions (0.32.*)")
    limits.add_argument("--grace", metavar="TIME", help="touch nothing younger than this; a publish may be in progress (1d)")
    limits.add_argument("--execute", action="store_true", help="remove; without it gc only says what it would remove")


def execute(args: argparse.Namespace, settings: Settings, stop: Stop) -> Answer:  # noqa: ARG001
    """Run the command."""
    from warmstart.workflow import care

    if args.names and args.action in {"ls", "du", "gc"}:
        raise UsageError(f"warmstart store {args.action} takes no key")
    limits = care.Limits(
        older_than=args.older_than,
        keep=args.keep,
        max_bytes=args.max_bytes,
        vllm=tuple(args.vllm or ()),
        grace=args.grace,
        execute=args.execute,
    )
    said = {
        "ls": lambda: care.ls(settings),
        "du": lambda: care.du(settings),
        "verify": lambda: care.verify(settings, args.names),
        "gc": lambda: care.gc(settings, limits),
        "rm": lambda: care.rm(settings, args.names),
        "keygen": lambda: care.keygen(args.names),
    }[args.action]()
    return Answer(said.document, said.text, 0 if said.sound else EXIT_UNSOUND)
