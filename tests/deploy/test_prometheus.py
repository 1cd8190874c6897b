"""The rules and the dashboard use metrics that there are, and Prometheus takes them."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from pitboss.model.metrics import METRICS, MetricKind
from tests.deploy.files import DEPLOY, ROOT

RULES, EXAMPLE = DEPLOY / "prometheus" / "rules.yml", DEPLOY / "prometheus" / "prometheus.yml"
DASHBOARD = DEPLOY / "grafana" / "pitboss.json"
HOW_TO, REFERENCE = ROOT / "docs" / "how-to" / "metrics.md", ROOT / "docs" / "reference" / "metrics.md"
# What Prometheus adds to every series.
ADDED = {"job", "instance"}
USE = re.compile(r"(pitboss_\w+)(?:\{([^}]*)\})?")
MATCHER = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")
GROUPED = re.compile(r"\bby \(([^)]*)\)")
# Which rules fire when a store is as these series say, after an hour.
BROKEN = {
    "PitbossWithoutManager": {"pitboss_managers": "0x120"},
    "PitbossWithoutLeader": {"pitboss_managers": "1x120", "pitboss_leader": "0x120"},
    "PitbossTasksWait": {'pitboss_queue_oldest_wait_seconds{queue="a"}': "1000x120"},
    "PitbossQueueGrows": {
        'pitboss_queue_tasks{queue="a",state="pending"}': "5000x120",
        'pitboss_tasks_enqueued_total{queue="a",handler="h"}': "0+200x120",
        'pitboss_tasks_total{queue="a",handler="h",outcome="completed"}': "0+100x120",
    },
    "PitbossTasksFail": {
        'pitboss_tasks_enqueued_total{queue="a",handler="h"}': "0+10x120",
        'pitboss_tasks_total{queue="a",handler="h",outcome="completed"}': "0+1x120",
        'pitboss_tasks_total{queue="a",handler="h",outcome="failed"}': "0+9x120",
    },
    "PitbossWorkersCrash": {'pitboss_worker_crashes_total{pool="p"}': "0+1x120"},
    "PitbossPoolIsDead": {
        'pitboss_workers_wanted{pool="p"}': "4x120",
        'pitboss_workers{pool="p",state="idle"}': "0x120",
        'pitboss_workers{pool="p",state="crashed"}': "4x120",
    },
    "PitbossMembersAreOut": {
        'pitboss_resource_members{pool="p",condition="ready"}': "1x120",
        'pitboss_resource_members{pool="p",condition="cooling"}': "9x120",
        'pitboss_resource_members{pool="p",condition="disabled"}': "90x120",
    },
    "PitbossSchedulesAreLate": {"pitboss_schedule_late_seconds": "300x120"},
    "PitbossStoreIsSlow": {"pitboss_store_answer_seconds": "3x120"},
    "PitbossDoesNotAnswer": {},
}
HEALTHY = {
    'pitboss_build_info{version="1"}': "1x120",
    "pitboss_managers": "2x120",
    "pitboss_leader": "1x120",
    'pitboss_queue_oldest_wait_seconds{queue="a"}': "3x120",
    'pitboss_queue_paused{queue="a"}': "0x120",
    'pitboss_queue_tasks{queue="a",state="pending"}': "5000x120",
    'pitboss_tasks_enqueued_total{queue="a",handler="h"}': "0+100x120",
    'pitboss_tasks_total{queue="a",handler="h",outcome="completed"}': "0+100x120",
    'pitboss_tasks_total{queue="a",handler="h",outcome="failed"}': "0+1x120",
    'pitboss_workers_wanted{pool="p"}': "4x120",
    'pitboss_workers{pool="p",state="idle"}': "4x120",
    'pitboss_worker_crashes_total{pool="p"}': "0x120",
    'pitboss_resource_members{pool="p",condition="ready"}': "9x120",
    'pitboss_resource_members{pool="p",condition="cooling"}': "1x120",
    "pitboss_schedule_late_seconds": "0x120",
    "pitboss_store_answer_seconds": "0.01x120",
}


def promtool(*arguments: str, folder: Path | None = None) -> None:
    done = subprocess.run(["promtool", *arguments], cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(DASHBOARD.read_text())
    return found


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def panel_expressions() -> list[str]:
    return [target["expr"] for panel in dashboard()["panels"] for target in panel.get("targets", ())]


def expressions() -> Iterator[str]:
    yield from panel_expressions()
    yield from (rule["expr"] for rule in rules())
    queries = (one["query"]["query"] for one in dashboard()["templating"]["list"] if isinstance(one["query"], dict))
    yield from queries
    yield from re.findall(r"```promql\n(.*?)```", HOW_TO.read_text(), re.DOTALL)


def labels_of(name: str) -> set[str]:
    """Of a series; fails for one that there is not."""
    base = re.sub(r"_(bucket|sum|count)$", "", name)
    if name not in METRICS and base in METRICS and METRICS[base].kind is MetricKind.HISTOGRAM:
        return {*METRICS[base].labels, "le"} | ADDED
    assert name in METRICS, f"there is no metric {name}"
    assert METRICS[name].kind is not MetricKind.HISTOGRAM, f"{name} has no values of its own"
    return {*METRICS[name].labels} | ADDED


@pytest.mark.parametrize("expression", sorted(set(expressions())))
def test_an_expression_uses_metrics_and_labels_that_there_are(expression: str) -> None:
    uses = USE.findall(expression)
    assert uses
    known = set[str]()
    for name, matchers in uses:
        labels = labels_of(name)
        assert set(MATCHER.findall(matchers)) <= labels, (name, matchers)
        known |= labels
    for group in GROUPED.findall(expression):
        assert {one.strip() for one in group.split(",")} <= known


def test_prometheus_takes_the_rules_and_the_example(tmp_path: Path) -> None:
    for file in (RULES, EXAMPLE):
        shutil.copy(file, tmp_path)
    (tmp_path / "pitboss.key").write_text("pbk_test\n")
    promtool("check", "rules", "rules.yml", folder=tmp_path)
    promtool("check", "config", "prometheus.yml", folder=tmp_path)


def test_prometheus_takes_every_expression_of_the_dashboard(tmp_path: Path) -> None:
    written = [one.replace("$__rate_interval", "5m").replace("$job", ".*") for one in panel_expressions()]
    recorded = [
        {"record": f"panel:{number}", "expr": one.replace("$queue", ".*")} for number, one in enumerate(written)
    ]
    assert len(recorded) > 25
    (tmp_path / "panels.yml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": recorded}]}))
    promtool("check", "rules", "panels.yml", folder=tmp_path)


def test_each_rule_fires_when_it_should_and_none_for_a_healthy_store(tmp_path: Path) -> None:
    shutil.copy(RULES, tmp_path)
    names = [rule["alert"] for rule in rules()]
    assert set(names) == BROKEN.keys()
    tests = []
    for fires, series in {**BROKEN, "": {}}.items():
        seen = {name: values for name, values in (HEALTHY | series).items() if fires != "PitbossDoesNotAnswer"}
        firing = [{"eval_time": "1h", "alertname": name} for name in names]
        for one in firing:
            if one["alertname"] == fires:
                one["exp_alerts"] = expected(fires)
        inputs = [{"series": name, "values": values} for name, values in seen.items()]
        tests.append({"interval": "30s", "input_series": inputs, "alert_rule_test": firing})
    (tmp_path / "test.yml").write_text(yaml.safe_dump({"rule_files": ["rules.yml"], "tests": tests}))
    promtool("test", "rules", "test.yml", folder=tmp_path)


def expected(alert: str) -> list[dict[str, Any]]:
    """The alert as it fires for the series of `BROKEN`."""
    (rule,) = [one for one in rules() if one["alert"] == alert]
    grouped = GROUPED.search(rule["expr"])
    names = {"queue": "a", "pool": "p"}
    about = {name: names[name] for name in (grouped[1].split(", ") if grouped else ()) if name in names}
    shown = {"PitbossTasksWait": "16m 40s", "PitbossSchedulesAreLate": "5m 0s", "PitbossStoreIsSlow": "3s"}
    texts = {}
    for name, text in rule["annotations"].items():
        for label, value in about.items():
            text = text.replace(f"{{{{ $labels.{label} }}}}", value)
        texts[name] = text.replace("{{ $value | humanizeDuration }}", shown.get(alert, ""))
    return [{"exp_labels": rule["labels"] | about, "exp_annotations": texts}]


def test_panels_do_not_lie_on_each_other() -> None:
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24


def test_the_reference_has_every_metric_as_the_list_has_it() -> None:
    rows = re.findall(r"^\| `(pitboss_\w+)` \| (\w+) \| (.*?) \| (.*) \|$", REFERENCE.read_text(), re.MULTILINE)
    assert rows == [
        (one.name, one.kind.value, ", ".join(f"`{label}`" for label in one.labels) or "–", one.help)
        for one in METRICS.values()
    ]
