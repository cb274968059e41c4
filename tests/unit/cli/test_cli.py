"""The command line: one JSON document on standard output, one line for every error, the exit codes of docs/design.md."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from warmstart import __version__, cli, commands, errors, settings
from warmstart.workflow.stopping import DeadlineExceeded, Terminated

ALL = commands.names()


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("WARMSTART_")]:
        monkeypatch.delenv(name)


def stand_in(monkeypatch: pytest.MonkeyPatch, execute: Any, name: str = "gpus") -> None:
    """Put `execute` in the place of a command's own."""

    def configure(parser: Any) -> None:
        commands.add_settings(parser, "fail_closed", "deadline")

    module = SimpleNamespace(USAGE="", DESCRIPTION="", configure=configure, execute=execute)
    monkeypatch.setattr(commands, "load", lambda asked: module if asked == name else None)


def raising(error: BaseException) -> Any:
    def execute(*_args: object) -> None:
        raise error

    return execute


def test_help_lists_every_command_in_its_group(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(f"\n  {name} " in text for name in ALL)
    assert all(f"{group}:" in text for group in commands.GROUPS)
    assert max(map(len, text.splitlines())) <= 130


def test_without_a_command_the_help_is_shown_and_the_call_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 2
    assert "usage: warmstart" in capsys.readouterr().out


@pytest.mark.parametrize("name", ALL)
def test_each_command_has_help_that_names_the_variables(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        cli.main([name, "--help"])
    assert raised.value.code == 0
    text = capsys.readouterr().out
    assert text.startswith(f"usage: warmstart {name}")
    assert "WARMSTART_OUTPUT" in text


def test_every_command_file_is_listed_and_every_listed_command_has_a_file() -> None:
    files = {path.stem for path in Path(commands.__file__).parent.glob("*.py")} - {"__init__"}
    assert files == set(ALL)


def test_every_setting_is_an_option_of_some_command() -> None:
    offered = set()
    for name in ALL:
        parser = cli.Parser(prog=name)
        commands.load(name).configure(parser)
        if name not in commands.PASS_THROUGH:
            commands.add_settings(parser, *commands.REPORTING)
        offered |= {action.dest for action in parser._actions}
    assert set(settings.fields()) <= offered


def test_no_option_of_compile_is_one_of_vllm() -> None:
    from warmstart.podspec.options import table

    parser = cli.Parser(prog="compile")
    commands.load("compile").configure(parser)
    ours = {string for action in parser._actions for string in action.option_strings} - {"-h", "--help"}
    theirs = {string for option in table().options for string in option.strings}
    assert not ours & theirs


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"warmstart {__version__}\n"


@pytest.mark.parametrize(
    "argv",
    [
        ["nonsense"],
        ["plan", "--nonsense"],
        ["plan", "--stor", "x"],
        ["gpus", "ls", "more"],
        ["store"],
        ["store", "melt"],
        ["explain", "only-one"],
        ["compile"],
        ["compile", "--gpu", "h200", "model"],
        ["plan", "--jobs"],
        ["plan", "--claim-ttl"],
        ["precompile", "--jobs", "many"],
    ],
)
def test_a_wrong_call_is_told_in_one_line_and_exits_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(argv) == 2
    told = capsys.readouterr()
    assert json.loads(told.out)["exit_code"] == 2
    assert len(told.err.splitlines()) == 1
    assert "Traceback" not in told.err


EXIT_CODES = {
    errors.UsageError("x"): 2,
    errors.SpecError("x"): 2,
    errors.ModelFilesError("x"): 2,
    errors.UnknownGpuError("x"): 2,
    errors.UnsupportedError("x"): 2,
    errors.AccessDenied("x"): 2,
    errors.EntryNotFound("x"): 10,
    errors.EntryInvalid("x"): 11,
    errors.EntryNotTrusted("x"): 11,
    errors.CompileError("x"): 12,
    errors.SeamError("a", "b", "c"): 12,
    errors.TemporaryError("x"): 75,
    errors.StoreUnavailable("x"): 75,
    errors.NoSpaceError("x"): 75,
    DeadlineExceeded("x"): 75,
    Terminated("x"): 143,
    KeyboardInterrupt(): 130,
    RuntimeError("x"): 70,
    MemoryError(): 70,
    RecursionError(): 70,
}


@pytest.mark.parametrize("error", EXIT_CODES, ids=lambda error: type(error).__name__)
def test_each_error_has_its_exit_code(
    error: BaseException, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in(monkeypatch, raising(error))
    assert cli.main(["gpus"]) == EXIT_CODES[error]
    told = capsys.readouterr()
    document = json.loads(told.out)
    assert document["error"] == type(error).__name__
    assert document["exit_code"] == EXIT_CODES[error]
    assert len(told.err.splitlines()) == 1


def test_every_error_class_is_in_the_table_above() -> None:
    def all_of(kind: type) -> set[type]:
        return {kind} | {one for below in kind.__subclasses__() for one in all_of(below)}

    ours = {kind for kind in all_of(errors.WarmstartError) if kind.__module__ == "warmstart.errors"}
    assert ours - {errors.WarmstartError} == {type(error) for error in EXIT_CODES if isinstance(error, errors.WarmstartError)}


@pytest.mark.parametrize("error", EXIT_CODES, ids=lambda error: type(error).__name__)
def test_run_fails_open_and_only_when_it_is_not_stopped(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, raising(error), "run")
    stopped = isinstance(error, Terminated | KeyboardInterrupt)
    assert cli.main(["run"]) == (EXIT_CODES[error] if stopped else 0)
    assert cli.main(["run", "--fail-closed"]) == EXIT_CODES[error]


@pytest.mark.parametrize(
    ("argv", "env", "code"),
    [
        (["run", "--nonsense"], {}, 0),
        (["run", "--deadline=soon"], {}, 0),
        (["run"], {"WARMSTART_JOBS": "many"}, 0),
        (["run", "--nonsense", "--fail-closed"], {}, 2),
        (["run", "--nonsense"], {"WARMSTART_FAIL_CLOSED": "true"}, 2),
        (["run"], {"WARMSTART_FAIL_CLOSED": "perhaps"}, 0),
        (["precompile"], {"WARMSTART_JOBS": "many"}, 2),
    ],
)
def test_a_wrong_call_of_run_does_not_keep_the_server_from_starting(
    argv: list[str], env: dict[str, str], code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert cli.main(argv) == code
    document = json.loads(capsys.readouterr().out)
    assert document["outcome"] == "failed"
    assert document["exit_code"] == code


def test_an_unexpected_error_asks_to_be_reported_and_shows_its_traceback_at_debug_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in(monkeypatch, raising(ZeroDivisionError("by zero\nin two lines")))
    assert cli.main(["gpus"]) == 70
    told = capsys.readouterr().err
    assert "please report" in told
    assert "ZeroDivisionError" in told
    assert "traceback" not in told.lower().replace("zerodivisionerror", "")
    assert cli.main(["gpus", "--log-level=debug"]) == 70
    assert "Traceback" in capsys.readouterr().err


def test_the_result_is_one_json_document_or_text(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    stand_in(monkeypatch, lambda *_: commands.Answer({"a": "ü"}, "for people"))
    assert cli.main(["gpus"]) == 0
    assert capsys.readouterr().out == '{"a": "ü"}\n'
    assert cli.main(["gpus", "--output=text"]) == 0
    assert capsys.readouterr().out == "for people\n"


def test_a_failed_manifest_prints_nothing_for_kubectl_to_read(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["job", "-f", "/nowhere.yaml"]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert "/nowhere.yaml" in told.err


def test_prewarm_without_a_cluster_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    argv = ["prewarm", "--store", str(tmp_path), "--kubeconfig", str(tmp_path / "none"), "--interval=5m", "--namespace=a"]
    assert cli.main(argv) == 2
    assert "kubeconfig" in json.loads(capsys.readouterr().out)["reason"]
    assert cli.main([*argv, "--interval=soon"]) == 2


def test_an_error_in_text_mode_leaves_standard_output_empty(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["plan", "--output=text", "-f", "/nowhere.yaml"]) == 2
    assert capsys.readouterr().out == ""


def test_the_log_is_json_unless_it_goes_to_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["plan", "-f", "/nowhere.yaml"])
    line = json.loads(capsys.readouterr().err)
    assert line["level"] == "warning"
    assert line["time"].endswith("Z")
    assert line["result"]["error"] == "SpecError"
    cli.main(["plan", "-f", "/nowhere.yaml", "--log-format=text"])
    assert capsys.readouterr().err.startswith("WARNING plan: failed: ")


def test_a_misspelt_variable_is_warned_of(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("WARMSTART_STROE", "x")
    stand_in(monkeypatch, lambda *_: commands.Answer({}, ""))
    cli.main(["gpus"])
    assert "WARMSTART_STROE is set, but no such setting exists" in capsys.readouterr().err


def test_options_that_are_not_ours_go_to_vllm_in_their_order() -> None:
    argv = [
        "compile",
        "m",
        "--tensor-parallel-size",
        "2",
        "--gpu=h200",
        "-O3",
        "--hf-overrides",
        '{"a": 1}',
        "--jobs",
        "3",
        "--x",
    ]
    _, args = cli.parse(argv)
    assert args.model == "m"
    assert args.gpu == "h200"
    assert args.jobs == "3"
    assert args.rest == ["--tensor-parallel-size", "2", "-O3", "--hf-overrides", '{"a": 1}', "--x"]


def test_a_reader_that_leaves_early_is_no_error() -> None:
    writer = subprocess.Popen(
        [sys.executable, "-m", "warmstart", "gpus"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ}
    )
    assert writer.stdout is not None
    assert writer.stderr is not None
    writer.stdout.close()
    assert writer.wait(30) == 0
    assert b"BrokenPipe" not in writer.stderr.read()
    writer.stderr.close()


def test_python_m_warmstart_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "warmstart", "gpus"], capture_output=True, check=False)
    assert done.returncode == 0
    assert any(row["id"] == "h200" for row in json.loads(done.stdout))
