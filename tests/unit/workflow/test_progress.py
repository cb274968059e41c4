"""A person who watches a pass sees which phase has ended, for which rank, and how long it took."""

from __future__ import annotations

import logging

import pytest

from warmstart.workflow import compiling


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (
            {"event": "phase", "rank": None, "name": "import torch", "seconds": 3.66, "elapsed": 3.66},
            "compile: import torch, 3.7 s (3.7 s so far)",
        ),
        ({"event": "world", "rank": None, "ranks": 8}, "compile: 8 rank(s) to compile"),
        (
            {"event": "report", "rank": 1, "modules": [{"entries": 29}, {"entries": 2}]},
            "compile: rank 1: done: 2 module(s), 31 graphs",
        ),
        ({"event": "error", "rank": 2, "message": "no"}, "compile: rank 2: event=error message=no"),
    ],
)
def test_each_event_is_one_line(event: dict[str, object], line: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="warmstart"):
        compiling.on_event(event)
    assert caplog.messages == [line]
