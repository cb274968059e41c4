"""Every values file renders alike with Helm 3 and 4, lints, and is what API servers from the oldest to the newest take."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml
from tests.chart.tools import CHART, HERE, KUBERNETES, STORE, Helm, cases, injected, invalid

_INJECTION = "1.36"


def _names(path: Path) -> str:
    return path.stem


@pytest.mark.parametrize("case", cases(), ids=_names)
def test_both_helms_render_the_same(case: Path) -> None:
    """Helm 3 and 4 give equal objects, so that users of either get what the other tests look at."""
    three, four = Helm("helm3").template(case), Helm("helm4").template(case)
    assert three.error == ""
    assert _comparable(three.objects) == _comparable(four.objects)


def _comparable(objects: tuple[dict[str, object], ...]) -> list[str]:
    return sorted(yaml.safe_dump(item) for item in objects)


@pytest.mark.parametrize("case", cases(), ids=_names)
def test_every_case_lints(helm4: Helm, case: Path) -> None:
    """No finding in strict mode."""
    assert helm4.lint(case) == ""


@pytest.mark.parametrize("version", KUBERNETES)
def test_api_servers_take_every_object(helm4: Helm, version: str) -> None:
    """Strict: an unknown or misplaced field is an error. The admission policy is there from 1.36 on."""
    without_injection = version < _INJECTION
    objects = []
    for case in cases():
        over = {"injection": {"enabled": False}} if without_injection else {}
        rendered = helm4.template(case, over, kubernetes=version)
        assert rendered.error == "", case
        objects += rendered.objects
    assert len(objects) > 35
    assert invalid(objects, version) == []


def test_what_is_injected_is_what_api_servers_take(helm4: Helm) -> None:
    """The policy holds it as an expression, which no schema looks into: taken out, it is a pod spec like any other."""
    seen = 0
    for case in cases():
        for policy in helm4.template(case).of("MutatingAdmissionPolicy"):
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": injected(policy)}
            assert invalid([pod], "1.36") == invalid([pod], "1.37") == []
            seen += 1
    assert seen >= 2


def test_the_strict_check_finds_a_misspelt_field() -> None:
    """The check of the test above can fail."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "x"},
        "spec": {"containers": [{"name": "x", "imagePulPolicy": "Always"}]},
    }
    assert "imagePulPolicy" in invalid([pod], "1.37")[0]


@pytest.mark.parametrize("name", ["defaults", *(case.stem for case in cases())])
def test_the_rendering_is_the_reviewed_one(helm4: Helm, name: str) -> None:
    """A change of a template shows as a change of a snapshot. WARMSTART_UPDATE_SNAPSHOTS=1 writes them anew."""
    rendered = helm4.template(STORE if name == "defaults" else HERE / "values" / f"{name}.yaml")
    text = (
        "".join(f"---\n{document}" for document in sorted(yaml.safe_dump(item, width=120) for item in rendered.objects))
        or "# nothing\n"
    )
    path = HERE / "snapshots" / f"{name}.yaml"
    if os.environ.get("WARMSTART_UPDATE_SNAPSHOTS"):
        path.write_text(text)
    assert path.read_text() == text


def test_the_defaults_render_nothing_but_what_was_asked_for(helm: Helm) -> None:
    """With a store alone the chart is a library: no object, no role, no account."""
    assert helm.template(STORE).objects == ()


def test_an_old_kubernetes_is_refused_by_version(helm: Helm) -> None:
    """The chart says from which version on it works."""
    assert "1.30" in helm.template(STORE, kubernetes="1.30").error


def test_the_package_holds_no_tools(helm4: Helm, tmp_path: Path) -> None:
    """`helm package` leaves out what only makes the chart's documents."""
    import tarfile

    done = helm4.run("package", str(CHART), "--destination", str(tmp_path))
    assert done.returncode == 0, done.stderr
    with tarfile.open(next(tmp_path.glob("*.tgz"))) as archive:
        names = {Path(name).name for name in archive.getnames()}
    assert {"values.schema.json", "README.md", "NOTES.txt"} <= names
    assert not names & {"generate.py", "definitions.yaml", "README.md.gotmpl"}
