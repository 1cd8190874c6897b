"""GET /metrics: both formats, checked by the parsers of Prometheus, for keys that may look."""

import subprocess
from collections.abc import Iterable, Iterator

import httpx
import pytest
from prometheus_client import parser
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics

from pitboss.model.figures import RAW, HandlerFigures, Sample, bucket
from pitboss.model.metrics import METRICS, MetricKind
from pitboss.model.task import NewTask
from tests.http.site import Site
from tests.servers.postgres import PostgresServer

OPEN = "application/openmetrics-text; version=1.0.0"
# What a Prometheus sends.
PREFERRED = f"{OPEN};q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def site(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, postgres_server: PostgresServer
) -> Iterator[Site]:
    urls = {"sqlite": f"sqlite:///{tmp_path_factory.mktemp('store')}/store.db"}
    with Site(url=urls.get(request.param) or postgres_server.create_database()) as running:
        running.do(
            running.store.put([NewTask(id="0198c1a0-0000-7000-8000-000000000001", handler="greet", queue="mail")])
        )
        figures = HandlerFigures("mail", "greet", 1)
        figures.wait.add(30_000)
        figures.run.add(2_000_000)
        at = bucket(running.store.clock.now(), RAW)
        running.do(running.store.add_samples([Sample(at=at, session=1, covered=10, handlers=[figures])]))
        yield running


def kinds(families: Iterable[object]) -> dict[str, str]:
    """The kinds of metrics by their whole names."""
    found = {str(getattr(one, "name", "")): str(getattr(one, "type", "")) for one in families}
    return {f"{name}_total" if kind == "counter" else name: kind for name, kind in found.items()}


def test_both_formats_have_metrics_of_the_list_and_no_others(site: Site) -> None:
    plain, opened = site.http.get("/metrics"), site.http.get("/metrics", headers={"Accept": PREFERRED})
    assert plain.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert opened.headers["content-type"].startswith(OPEN)
    told = kinds(parser.text_string_to_metric_families(plain.text))
    assert told == kinds(open_metrics(opened.text))  # type: ignore[no-untyped-call]
    assert told == {name: METRICS[name].kind.value for name in told}
    assert {"pitboss_tasks_total", "pitboss_task_wait_seconds", "pitboss_queue_tasks"} <= told.keys()


def test_a_histogram_is_cumulative_and_in_seconds(site: Site) -> None:
    text = site.http.get("/metrics").text
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if line.startswith("pitboss_task_wait_seconds"))
    counts = {name.split('"')[1]: float(n) for name, n in lines.items() if "_bucket" in name}
    assert (counts["0.025"], counts["0.1"], counts["+Inf"]) == (0, 1, 1)
    assert list(counts.values()) == sorted(counts.values())
    assert float(lines['pitboss_task_wait_seconds_sum{queue="mail"}']) == 0.03
    assert float(lines['pitboss_task_wait_seconds_count{queue="mail"}']) == 1


def test_promtool_has_nothing_to_say(site: Site) -> None:
    text = site.http.get("/metrics").text
    checked = subprocess.run(
        ["promtool", "check", "metrics"], check=False, input=text, capture_output=True, text=True, timeout=30
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def test_it_answers_under_both_paths_with_the_same(site: Site) -> None:
    assert site.http.get("/api/metrics").status_code == 200
    assert site.http.head("/metrics").headers["content-type"].startswith("text/plain")
    assert site.http.post("/metrics").status_code == 405


def test_a_key_of_a_viewer_opens_it_as_a_bearer_token() -> None:
    with Site() as locked:
        keys = {role: locked.key(role) for role in ("viewer", "worker")}
        codes = {
            role: locked.http.get("/metrics", headers={"Authorization": f"Bearer {key}"}).status_code
            for role, key in keys.items()
        }
        assert codes == {"viewer": 200, "worker": 403}
        assert locked.http.get("/metrics").status_code == 401


def test_an_odd_accept_header_gets_the_plain_format(site: Site) -> None:
    for accept in ("", ";;;", "text/html", "application/openmetrics-text;version=99", "q" * 1900):
        answer: httpx.Response = site.http.get("/metrics", headers={"Accept": accept})
        assert answer.status_code == 200
        kinds(parser.text_string_to_metric_families(answer.text))


def test_every_name_is_one_that_prometheus_recommends() -> None:
    for name, metric in METRICS.items():
        assert name.startswith("pitboss_")
        assert name.endswith("_total") == (metric.kind is MetricKind.COUNTER)
        assert not name.endswith(("_bucket", "_sum", "_count"))
        assert not {"task", "id", "worker", "member", "pid", "host"} & set(metric.labels)
