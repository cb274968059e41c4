"""The canonical form says what the installed vLLM's own parser says, of any supported version. It imports vLLM: `compile`."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, event, example, given, settings
from tests.unit.podspec import generate_options
from tests.unit.podspec.argument_lists import ARGUMENTS, OPTIONS, VERSION

from warmstart.errors import SpecError
from warmstart.podspec import configfile, options

pytestmark = pytest.mark.compile
BY_DEST = {option.dest: option for option in OPTIONS}
Parse = Callable[[list[str]], argparse.Namespace]


class Refused(Exception):
    """What vLLM's parser says when it exits."""


def _strict(parse: Callable[[list[str]], argparse.Namespace]) -> Parse:
    def parsed(args: list[str]) -> argparse.Namespace:
        text = io.StringIO()
        try:
            with contextlib.redirect_stderr(text):
                return parse(args)
        except (SystemExit, ValueError, IndexError, AssertionError, TypeError, AttributeError) as error:
            raise Refused(f"{text.getvalue()} {error!r}") from None

    return parsed


@pytest.fixture(scope="module")
def module_parser() -> argparse.ArgumentParser:
    """Return the parser of the module `vllm.entrypoints.openai.api_server`."""
    return generate_options.vllm_parser()


@pytest.fixture(scope="module")
def serve(module_parser: argparse.ArgumentParser) -> Parse:
    """`vllm serve`, as the outer command parses it: returns the namespace of the words after `serve`."""
    from vllm.entrypoints.cli.serve import ServeSubcommand

    parser = type(module_parser)(prog="vllm")
    ServeSubcommand().subparser_init(parser.add_subparsers(required=False, dest="subparser"))
    return _strict(lambda args: parser.parse_args(["serve", *args]))


@pytest.fixture(scope="module")
def module(module_parser: argparse.ArgumentParser) -> Parse:
    """Return how the module `api_server` reads its arguments."""
    return _strict(module_parser.parse_args)


def _answer(vllm: Parse, args: list[str]) -> dict[str, Any] | None:
    """Return vLLM's namespace, None where it refuses the list."""
    try:
        return vars(vllm(args))
    except Refused:
        return None


def _plain(value: Any) -> Any:
    """Return a value of vLLM's namespace as ours would be: NaN and infinity are words, since JSON has neither."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _check(args: list[str], vllm: Parse, parser: argparse.ArgumentParser) -> None:
    actions = {action.dest: action for action in parser._actions}
    try:
        ours: dict[str, Any] | None = options.canonical(args, VERSION)
    except SpecError:
        ours = None
    theirs = _answer(vllm, ["M", *args])
    if theirs is None:
        # vLLM also checks the fields of a config object, which is left to it, knows no value that only the pod has, and reads
        # the file of --config at once.
        given_ = options._parse(args, VERSION)[0] if ours is not None else {}
        left = [word for word in args if "$" in word]
        left += [dest for dest in given_ if dest == "config" or BY_DEST[dest].type == "config"]
        event("refused by both" if ours is None else "refused by vLLM for a config's fields")
        assert ours is None or left, args
        return
    event("read by both")
    assert ours is not None, args
    for dest, option in BY_DEST.items():
        found = theirs.get(dest, actions[dest].default)
        if dest in ours and option.type == "config" and ours[dest] is not None:
            again = actions[dest].type(json.dumps(ours[dest]))
            if hasattr(again, "engine_id") and "engine_id" not in ours[dest]:
                again.engine_id = found.engine_id  # a new UUID each time
            assert again == found, dest
        elif dest in ours:
            assert _plain(ours[dest]) == _plain(found), dest
            assert type(ours[dest]) is type(_plain(found)), dest
        else:
            assert found == actions[dest].default, dest


@settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(args=ARGUMENTS)
@example(args=["--compilation-config", '{"mode": 3}', "-cc.mode", "2"])
@example(args=["--compilation-config.cudagraph_capture_sizes+", "1,2", "--compilation_config.cudagraph_capture_sizes+=4"])
@example(args=["--watermark", "-0.5", "--seed", "1"])
@example(args=["-O.mode=3"])
@example(args=["--config", "auto"])
@example(args=["--kv-transfer-config", '{"kv_connector": "NixlConnector", "kv_role": "kv_both", "kv_buffer_size": 2k}'])
def test_every_list_reads_as_in_vllm(args: list[str], serve: Parse, module_parser: argparse.ArgumentParser) -> None:
    """What one refuses the other refuses, and every option comes to the same value."""
    _check(args, serve, module_parser)


MODELS = [
    ["M", "-tp", "2"],
    ["-tp", "2", "M"],
    ["-tp", "2", "M", "-pp", "2"],
    ["--model", "M", "-tp", "2"],
    ["-tp", "2", "--model=M"],
    ["--model", "M", "--model", "N"],
    ["M", "--model", "N"],
    ["M", "N"],
    ["--model"],
    [],
    ["--config", "c.yaml"],
    ["M", "--config", "c.yaml"],
    ["--model", "N", "--config", "c.yaml"],
    ["M", "--config", "bare.yaml", "--port", "2"],
    ["--config", "bare.yaml"],
    ["-tp", "2", "M", "--config", "bare.yaml"],
    ["M", "--config=bare.yaml"],
    ["M", "--config", "c.yaml", "--config", "c.yaml"],
    ["M", "--config", "c.json"],
    ["M", "--config"],
    ["M", "--port", "3", "--config", "c.yaml", "--max_model_len", "1k"],
]
CONFIGS = {
    "c.yaml": """
model: from-config
port: 9
max_model_len: 2K
enable_prefix_caching: false
enable-prefix-caching: false
enforce-eager: true
seed: null
served-model-name: [a, b]
allowed-media-domains: []
compilation-config: {mode: 3, pass_config: {fuse_norm_quant: true}}
gpu-memory-utilization: 0.5
""",
    "bare.yaml": "tensor-parallel-size: 2\nport: 1\nport: 8\n",
    "c.json": "{}",
}


class _Files(configfile.Files):
    def __init__(self) -> None:
        """Serve the files of this test."""

    def read(self, path: str) -> str:
        """Return one of them."""
        return CONFIGS[path]


@pytest.mark.parametrize("args", MODELS, ids=" ".join)
@pytest.mark.parametrize("form", ["serve", "module"])
def test_model_and_config_file_read_as_in_vllm(
    args: list[str], form: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model, and every option of a config file, come to what vLLM makes of them, in both ways to start a server."""
    monkeypatch.chdir(tmp_path)
    for name, content in CONFIGS.items():
        Path(name).write_text(content, encoding="utf-8")
    vllm: Parse = request.getfixturevalue(form)
    is_serve = form == "serve"
    try:
        model, rest = options.split(configfile.merge(args, _Files(), serve=is_serve, version=VERSION), VERSION, serve=is_serve)
        ours = options.canonical(rest, VERSION) | {"model": model or options.table(VERSION).default_model}
    except SpecError as error:
        if "ignores the positional" in str(error):
            assert (
                vllm(list(args)).model == options.table(VERSION).default_model
            )  # refused on purpose: the server takes its default
        else:
            with pytest.raises(Refused):
                vllm(list(args))
        return
    namespace = vllm(list(args))
    positional = namespace.model_tag if is_serve else None
    expected = {"model": positional if positional is not None else namespace.model}
    given_ = options.canonical([*rest], VERSION)
    for dest in given_:
        value = getattr(namespace, dest)
        expected[dest] = ours[dest] if BY_DEST.get(dest) is None or BY_DEST[dest].type == "config" else value
    assert ours == expected
    again = vllm([*(["M"] if is_serve else []), *rest])
    for dest in BY_DEST:
        assert getattr(again, dest, None) == getattr(namespace, dest, None), dest


def test_the_table_is_what_the_installed_parser_says() -> None:
    """The committed data file is what the generator writes today."""
    done = subprocess.run(
        [sys.executable, generate_options.__file__, "--check"], check=False, capture_output=True, text=True, cwd="/"
    )
    assert done.returncode == 0, done.stderr[-2000:]
