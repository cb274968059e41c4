"""A result reaches everyone it is meant for, in the form each can take, and a place that cannot be written changes nothing."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
from pathlib import Path

import pytest

from warmstart import log, report
from warmstart.report import Result, termination_message

PLAIN = Result(command="run", outcome="hit", model="Qwen/Qwen3-0.6B", request_key="f" * 64, seconds=0.2512345, ranks=1)
HUGE = Result(
    command="run",
    outcome="failed",
    reason="ü" * 10_000,
    error="CompileError",
    model="m" * 5_000,
    request_key="f" * 64,
    aot_keys=tuple("a" * 64 for _ in range(500)),
    cache_root="/" + "c" * 4_000,
    warnings=tuple("w\n" * 1_000 for _ in range(50)),
)


def test_a_message_leaves_empty_fields_out() -> None:
    message = json.loads(termination_message(PLAIN))
    assert message == {
        "command": "run",
        "outcome": "hit",
        "model": "Qwen/Qwen3-0.6B",
        "request_key": "f" * 64,
        "ranks": 1,
        "seconds": 0.251,
    }


def test_a_message_of_any_size_stays_below_the_kubelets_limit_and_is_still_json() -> None:
    encoded = termination_message(HUGE)
    assert len(encoded) < report.TERMINATION_LIMIT
    message = json.loads(encoded)
    assert message["outcome"] == "failed"
    assert message["error"] == "CompileError"
    assert message["request_key"] == "f" * 64
    assert message["aot_keys_total"] == 500


@pytest.mark.parametrize("field", ["reason", "model", "error", "gpu", "vllm", "command", "cache_root"])
@pytest.mark.parametrize("character", ["x", "ü", "\U0001f600", "\n", '"', "\x00", "\udcff"])
def test_no_single_field_breaks_the_limit(field: str, character: str) -> None:
    values = {"command": "run", "outcome": "failed", field: character * 9_000}
    encoded = termination_message(Result(**values))  # type: ignore[arg-type]
    assert len(encoded) < report.TERMINATION_LIMIT
    assert json.loads(encoded)["outcome"] == "failed"


@pytest.mark.parametrize("place", ["folder/missing/log", "folder", "file/log"])
def test_a_termination_log_that_cannot_be_written_is_no_error(tmp_path: Path, place: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("")
    report.write_termination(PLAIN, tmp_path / place)


def test_the_default_place_is_written_only_where_it_exists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "TERMINATION_LOG", tmp_path / "termination-log")
    report.write_termination(PLAIN, None)
    assert not (tmp_path / "termination-log").exists()
    (tmp_path / "termination-log").write_text("")
    report.write_termination(PLAIN, None)
    assert json.loads((tmp_path / "termination-log").read_text())["outcome"] == "hit"


def test_the_document_has_the_same_fields_for_every_outcome() -> None:
    assert set(PLAIN.document()) == set(HUGE.document())
    assert json.loads(json.dumps(PLAIN.document()))["seconds"] == 0.251


def test_the_text_says_what_is_known() -> None:
    text = Result(command="run", outcome="compiled", raw_bytes=27_500_000, stored_bytes=519_000, warnings=("careful",)).text()
    assert "27.5 MB" in text
    assert "519.0 kB" in text
    assert "warning: careful" in text
    assert "request key" not in text


def test_a_log_line_is_one_json_object_whatever_is_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    log.start("debug", "json")
    try:
        int("two\nlines")
    except ValueError:
        logging.getLogger("warmstart.store").exception("a %s", "b\nc", extra={"key": "k", "odd": object()})
    (line,) = capsys.readouterr().err.splitlines()
    document = json.loads(line)
    assert document["message"] == "a b\nc"
    assert document["key"] == "k"
    assert "ValueError" in document["traceback"]


def test_the_root_logger_is_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    before = list(logging.getLogger().handlers)
    log.start("info", "text")
    log.start("info", "text")
    report.LOG.info("once")
    assert logging.getLogger().handlers == before
    assert capsys.readouterr().err == "INFO once\n"


def test_a_closed_standard_error_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    log.start("info", "auto")
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    log.start("info", "auto")


def test_errors_are_told_in_one_line() -> None:
    assert "\n" not in report.describe(ValueError("a\nb"))
    assert report.describe(KeyboardInterrupt()) == "interrupted"


def test_metrics_are_not_imported_unless_asked_for() -> None:
    code = (
        "import sys; from warmstart import commands, report; from warmstart.settings import Settings;"
        "commands.tell(report.Result(command='run', outcome='hit'), Settings.read({}, {}));"
        "sys.exit('prometheus_client' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, capture_output=True).returncode == 0


ALONE = """
import sys
from warmstart import log
log.start("info", sys.argv[1])
logger = log.Log("warmstart.store")
logger.debug("not told")
logger.info("a %s", "b\\nc", extra={"key": "k", "odd": object})
try:
    int("x")
except ValueError as error:
    logger.log("error", "failed", exc_info=error)
if sys.argv[2] == "late":
    import logging
    logger.warning("100 %% %d", 7)
    logging.getLogger("warmstart.other").error("by the library's own name")
else:
    assert "logging" not in sys.modules
    logger.warning("100 %% %d", 7)
"""


def written(form: str, when: str) -> list[str]:
    """Return the log of a program of its own, which imports logging late or never."""
    done = subprocess.run([sys.executable, "-c", ALONE, form, when], capture_output=True, text=True, check=True)
    return done.stderr.splitlines()


def test_lines_are_the_same_without_the_library_and_after_it_was_imported() -> None:
    lines = [json.loads(line) for line in written("json", "never")]
    assert [line.pop("message") for line in lines] == ["a b\nc", "failed", "100 % 7"]
    assert [line["level"] for line in lines] == ["info", "error", "warning"]
    assert {line["logger"] for line in lines} == {"warmstart.store"}
    assert lines[0]["key"] == "k"
    assert "invalid literal" in lines[1]["traceback"]
    late = [json.loads(line) for line in written("json", "late")]
    assert [set(line) - {"message"} for line in late[:3]] == [set(line) for line in lines]
    assert late[3]["message"] == "by the library's own name"


def test_text_lines_are_the_same_without_the_library_and_after_it_was_imported() -> None:
    never, late = written("text", "never"), written("text", "late")
    assert never[:2] == ["INFO a b", "c"]
    assert never[-1] == "WARNING 100 % 7"
    assert late[:-1] == never
    assert late[-1] == "ERROR by the library's own name"
