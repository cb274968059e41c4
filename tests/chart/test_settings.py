"""The chart speaks the program's language: its variables are settings, its values and arguments are ones that it reads."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.chart.tools import CHART, Helm, cases, containers, env_of, pods

from warmstart.settings import Settings, fields, variable


def _containers(helm: Helm) -> Iterator[tuple[str, list[str], dict[str, str]]]:
    for case in cases():
        for kind, pod in pods(helm.template(case).objects):
            for one in containers(pod):
                yield f"{case.stem} {kind}", one["args"], env_of(one)


def test_every_variable_in_the_chart_is_a_setting() -> None:
    """In the templates' text, so that no branch is missed."""
    known = {variable(name) for name in fields()}
    for path in (CHART / "templates").iterdir():
        used = set(re.findall(r"WARMSTART_[A-Z_]+", path.read_text()))
        assert used <= known, path.name


def test_the_image_sets_only_what_the_compiler_reads() -> None:
    """The Dockerfile's variable too: the stand-in for the driver."""
    text = (CHART.parents[1] / "Dockerfile").read_text()
    assert set(re.findall(r"WARMSTART_[A-Z_]+", text)) == {variable("cuda_stub")}


def test_the_program_reads_every_value_that_the_chart_sets(helm4: Helm) -> None:
    """Durations, switches, words and lists are in the form that settings.py takes."""
    seen = 0
    for name, _, env in _containers(helm4):
        expanded = {key: value.replace("$$", "$") for key, value in env.items()}
        settings = Settings.read(expanded)
        assert settings.store, name
        seen += 1
    assert seen > 10


def test_the_program_takes_every_command_line(helm4: Helm) -> None:
    """The arguments that the chart gives, parsed by the program's own parser."""
    from warmstart import cli

    seen = set()
    for _, args, _ in _containers(helm4):
        cli.parse(args)
        seen.add(args[0])
    assert seen == {"run", "precompile", "prewarm", "store"}
