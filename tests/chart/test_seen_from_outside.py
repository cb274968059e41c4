"""The dashboard, and what NOTES.txt tells a user to type."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.chart.tools import CHART, HERE, ROOT, STORE, Helm, env_of, injected, merge, program

_VALUES = HERE / "values"


def _dashboard() -> dict[str, Any]:
    return dict(json.loads((CHART / "files" / "dashboard.json").read_text()))


def _queries() -> list[str]:
    queries = [target["expr"] for panel in _dashboard()["panels"] for target in panel["targets"]]
    return queries + [one["query"]["query"] for one in _dashboard()["templating"]["list"] if one["type"] == "query"]


def test_the_dashboard_asks_for_metrics_and_labels_that_there_are() -> None:
    """Every name is one that a real result delivers, every label one that its metric has; and every metric is shown."""
    from prometheus_client import CollectorRegistry

    from warmstart import metrics
    from warmstart.report import Result

    registry = CollectorRegistry()
    registry.register(metrics._Collector(Result(command="run", outcome="hit"), 1.0))
    labels: dict[str, set[str]] = {}
    for family in registry.collect():
        for sample in family.samples:
            labels.setdefault(sample.name, set()).update(sample.labels)
    shown = set()
    for query in _queries():
        names = set(re.findall(r"warmstart_[a-z_]+", query))
        assert names <= labels.keys(), query
        shown |= names
        known = set.union(*(labels[name] for name in names))
        for group in re.findall(r"by \(([^)]*)\)", query):
            assert {label.strip() for label in group.split(",")} <= known, query
        for selector in re.findall(r"\{([^}]*)\}", query):
            assert set(re.findall(r"([a-z_]+)[=!]~?=?\"", selector)) <= known, query
    assert shown == labels.keys()


def test_the_dashboards_outcomes_are_the_programs() -> None:
    """A renamed outcome would silently count nothing."""
    from warmstart import report

    text = report.Result.__doc__ or ""
    known = set(re.findall(r"[a-z-]+", text.partition("is one of:")[2].partition(".")[0]))
    for query in _queries():
        for words in re.findall(r"outcome=~?\"([a-z|-]+)\"", query):
            assert set(words.split("|")) <= known, query


def test_the_dashboard_is_one_that_grafana_loads() -> None:
    """Ids differ, panels do not overlap, and the data source is the user's choice."""
    panels = _dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24
    assert {panel["datasource"]["uid"] for panel in panels} == {"${datasource}"}


def test_the_config_map_holds_the_very_dashboard(helm: Helm) -> None:
    """With the label by which Grafana's sidecar finds it."""
    rendered = helm.template(_VALUES / "names-and-extras.yaml").one("ConfigMap", "-dashboard")
    assert json.loads(rendered["data"]["warmstart.json"]) == _dashboard()
    assert rendered["metadata"]["labels"]["grafana_dashboard"] == "yes"
    assert rendered["metadata"]["annotations"]["grafana_folder"] == "vLLM"


def test_init_containers_push_metrics_only_when_told(helm4: Helm) -> None:
    """A gateway that does not answer must not cost every pod its time-out."""
    on = merge(STORE, {"injection": {"enabled": True}, "metrics": {"pushgateway": "http://gateway:9091"}})
    policies = [
        helm4.template(on, {"metrics": {"pushFromInit": told}}).one("MutatingAdmissionPolicy") for told in (False, True)
    ]
    init = [env_of(injected(policy)["containers"][0]) for policy in policies]
    assert "WARMSTART_PUSHGATEWAY" not in init[0]
    assert init[1]["WARMSTART_PUSHGATEWAY"] == "http://gateway:9091"


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (STORE, ["s3://bucket/prefix", "made nothing that runs", "WARNING: entries are checked by digest only"]),
        (_VALUES / "precompile.yaml", ["kubectl get jobs", "component=precompile"]),
        (_VALUES / "prewarm-watch.yaml", ["warmstart.dev/prewarm in (yes,true)"]),
        (_VALUES / "names-and-extras.yaml", ["kubectl logs -n models POD -c warmstart"]),
    ],
)
def test_the_notes_say_what_to_look_at(helm4: Helm, values: dict[str, Any] | Path, said: list[str]) -> None:
    """How to see hit or miss, for what was installed."""
    notes = helm4.notes(values)
    for words in said:
        assert words in notes
    assert "initContainerStatuses" in notes
    assert ("WARNING" in notes) is (values != _VALUES / "names-and-extras.yaml")


def _template_of(notes: str, container: str) -> str:
    found = [line for line in notes.splitlines() if "jsonpath" in line and container in line]
    return re.search(r"jsonpath='(.*)'", found[0])[1]  # type: ignore[index]


def test_the_one_liners_print_the_termination_message(helm4: Helm, tmp_path: Path) -> None:
    """Typed into a real kubectl, over pods as a kubelet reports them: one line for each, with the JSON message."""
    message = '{"command":"run","outcome":"hit"}'
    pods = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "status": {
                field: [{"name": "other", "state": {}}] * (field == "initContainerStatuses")
                + [{"name": "warmstart", "state": {"terminated": {"message": message}}}]
            },
        }
        for name, field in (("init", "initContainerStatuses"), ("job", "containerStatuses"))
    ]
    notes = helm4.notes(_VALUES / "precompile.yaml")
    for pod, field in zip(pods, ("initContainerStatuses", "containerStatuses[0]"), strict=True):
        file = tmp_path / "pod.json"
        file.write_text(json.dumps(pod))
        command = [program("kubectl"), "label", "--local", "-f", file, "seen=yes"]
        template = _template_of(notes, field).replace("{range .items[*]}", "").replace("{end}", "")
        env = {"KUBECONFIG": str(tmp_path / "none"), "HOME": str(tmp_path)}
        done = subprocess.run([*command, "-o", f"jsonpath={template}"], capture_output=True, text=True, check=False, env=env)
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip() == f"{pod['metadata']['name']}\t{message}"  # type: ignore[index]


def test_the_commands_of_the_readme_work(helm4: Helm) -> None:
    """Every values example of README.md renders, and every `helm template` line of it runs."""
    text = (CHART / "README.md").read_text()
    examples = re.findall(r"```yaml\n# values.yaml\n(.*?)```", text, re.DOTALL)
    assert len(examples) >= 4
    for example in examples:
        rendered = helm4.template(dict(yaml.safe_load(example)))
        assert rendered.error == "", example
    assert (ROOT / "helm" / "warmstart").exists()
