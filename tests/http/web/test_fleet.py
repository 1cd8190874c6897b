"""Pages of workers, resource pools and partitions: what they show, what their forms do, and what they never show."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from pitboss.http.gate import GateRules
from pitboss.http.web.pages import partitions, workers
from pitboss.model.duration import SECOND
from pitboss.model.errors import TimedOutWaiting
from pitboss.model.filter import by
from pitboss.model.session import SessionInfo
from pitboss.model.snapshot import CurrentTask, PoolFigures, Snapshot, WorkerFigures, WorkerState
from pitboss.model.stack import TaskStack
from pitboss.model.task import NewTask
from pitboss.operate.desired_state import read_desired_state
from pitboss.operate.stacks import StackReading
from tests.http.site import Site
from tests.http.web.fleet import DETAILS, SECRET
from tests.http.web.pages import HOSTILE, furnish
from tests.http.web.test_acts import sent

LINE = '{"time":"2026-01-01T00:00:0%d.000Z","level":"info","worker":"default-1","logger":"shop","event":"%s"}\n'


@pytest.fixture
def site() -> Iterator[Site]:
    with Site() as site:
        site.do(furnish(site.store, site.server.make_id))
        yield site


def page(site: Site, path: str) -> str:
    site.dashboard._readings.clear()
    answer = site.http.get(f"/ui{path}")
    assert answer.status_code == 200, answer.text[-1500:]
    return answer.text


def act(site: Site, path: str, **fields: str) -> httpx.Response:
    answer = sent(site, path, fields, HX_Request="true")
    assert answer.status_code == 200, answer.text
    return answer


def orders(site: Site) -> dict[str, Any]:
    return dict(site.do(read_desired_state(site.store)).values)


def member(site: Site, name: str) -> Any:
    return site.do(site.store.resources("accounts", [name]))[0]


def key(site: Site, name: str) -> Any:
    return next(one for one in site.do(site.store.partitions("targets")) if one.key == name)


def manager(site: Site, logs: str, *, host: str = "site", task: str = "") -> int:
    """A manager that says that its logs are in this folder."""

    async def start() -> int:
        session = await site.store.open_session(SessionInfo(host=host, pid=7, ttl=3600 * SECOND))
        tasks = (CurrentTask(id=task, handler="send", since=site.store.clock.now()),) if task else ()
        worker = WorkerFigures(name="default-1", state=WorkerState.IDLE, tasks=tasks, running=len(tasks))
        shot = Snapshot(pools=(PoolFigures(name="default", concurrency=1, wanted=1),), workers=(worker,), logs=logs)
        await site.store.renew(session.number, msgspec.json.encode(shot).decode())
        return session.number

    return site.do(start())


def test_workers_are_filtered_by_state_pool_and_host(site: Site) -> None:
    assert page(site, "/workers").count('<tr id="worker-') == 7
    assert page(site, "/workers?state=restarting").count('<tr id="worker-') == 1
    assert page(site, "/workers?pool=other").count('<tr id="worker-') == 0
    assert page(site, "/workers?host=box1&state=idle").count('<tr id="worker-') == 1


@pytest.mark.parametrize("number", ["0", "-1", "x", "1e9", "9" * 60, "²"])
def test_a_page_number_that_is_none_is_the_first_or_an_empty_page(site: Site, number: str) -> None:
    page(site, f"/workers?page={number}")


def test_many_workers_come_in_pages(site: Site) -> None:
    async def many() -> None:
        session = await site.store.open_session(SessionInfo(host="big", pid=2, ttl=3600 * SECOND))
        found = tuple(WorkerFigures(name=f"web-{place}", pool="web") for place in range(120))
        shot = Snapshot(pools=(PoolFigures(name="web", wanted=120),), workers=found)
        await site.store.renew(session.number, msgspec.json.encode(shot).decode())

    site.do(many())
    address, seen = "/ui/pools/web", list[str]()
    while address:
        text = site.http.get(address).text
        seen += [part.partition('"')[0] for part in text.split('<tr id="worker-')[1:]]
        address = text.partition('rel="next" href="')[2].partition('"')[0].replace("&amp;", "&")
    assert len(seen) == len(set(seen)) == 120


def test_the_size_of_a_pool_is_set_for_a_host_or_all_and_withdrawn(site: Site) -> None:
    act(site, "/worker-pools/default/scale", size="3", host="")
    act(site, "/worker-pools/default/scale", size="5", host="box1")
    assert (orders(site)["pool/default"]["size"], orders(site)["pool/default@box1"]["size"]) == (3, 5)
    assert "Set by an operator on box1: 5 workers" in page(site, "/pools/default")
    act(site, "/worker-pools/default/scale", size="_null")
    assert orders(site) == {}


def test_a_pool_is_paused_resumed_and_restarted(site: Site) -> None:
    act(site, "/worker-pools/default/pause", reason="deploy")
    assert orders(site)["pool/default"]["paused_reason"] == "deploy"
    act(site, "/worker-pools/default/resume")
    act(site, "/worker-pools/default/restart", _confirm="Restart?", _sure="1")
    assert orders(site) == {"pool/default": {"generation": 1}}


def test_a_manager_is_drained_and_stopped(site: Site) -> None:
    act(site, "/managers/1/drain")
    assert orders(site)["manager/1"] == {"drain": True}
    act(site, "/managers/1/undrain")
    act(site, "/managers/1/stop")
    assert orders(site)["manager/1"] == {"stop": True}


def test_the_log_of_a_worker_of_this_host_is_shown(site: Site, tmp_path: Path) -> None:
    (tmp_path / "worker-default-1.log").write_text(LINE % (1, "first") + LINE % (2, "<b>second</b>"))
    (tmp_path / "worker-default-2.log").write_text(LINE % (1, "of another worker"))
    number = manager(site, str(tmp_path))
    text = page(site, f"/workers/{number}/default-1")
    assert text.index("shop: first") < text.index("shop: &lt;b&gt;second&lt;/b&gt;")
    assert "of another worker" not in text


@pytest.mark.parametrize("host", ["elsewhere", "site"])
def test_the_log_of_another_host_is_not_looked_for_here(site: Site, tmp_path: Path, host: str) -> None:
    (tmp_path / "worker-default-1.log").write_text(LINE % (1, "first"))
    # The same name, but another machine.
    site.server._boot_id = "this boot"
    text = page(site, f"/workers/{manager(site, str(tmp_path), host=host)}/default-1")
    assert "shop: first" not in text
    assert f"{host}, in {tmp_path}" in text
    assert "pitboss logs default-1 -f" in text


@pytest.mark.parametrize(
    "name",
    [
        "../../etc/passwd",
        "..%2F..%2Fetc%2Fpasswd",
        "%2e%2e%2fsecret",
        "%2e%2e",
        "secret",
        "default-1%00",
        "default-1.log",
        "manager",
        ".worker-files",
        "default-1/..%2Fsecret",
        "*",
    ],
)
def test_no_path_leads_to_another_file(site: Site, tmp_path: Path, name: str) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    for path in (tmp_path / "secret", logs / "secret", logs / "manager.log"):
        path.write_text(LINE % (1, "leaked"))
    answer = site.http.get(f"/ui/workers/{manager(site, str(logs))}/{name}")
    assert answer.status_code == 404
    assert "leaked" not in answer.text


def test_a_folder_that_cannot_be_read_is_no_fault(site: Site, tmp_path: Path) -> None:
    assert "has logged nothing yet" in page(site, f"/workers/{manager(site, str(tmp_path / 'none'))}/default-1")


def test_unknown_names_lead_to_a_page_that_helps(site: Site) -> None:
    for path, help_ in (
        ("/workers/1/other", "pitboss ps lists the workers"),
        ("/workers/99/default-0", "pitboss ps shows the numbers"),
        ("/workers/x/default-0", "pitboss ps"),
        ("/pools/defalt", "did you mean default?"),
        ("/resources/acounts", "did you mean accounts?"),
        ("/resources/accounts/a-99", "its members are a-0"),
        ("/partitions/tagets", "did you mean targets?"),
    ):
        answer = site.http.get(f"/ui{path}")
        assert answer.status_code == 404, path
        assert help_ in answer.text, path
    undivided = site.http.get("/ui/partitions/mail")
    assert (undivided.status_code, "partition_by" in undivided.text) == (400, True)


def test_the_stack_of_a_running_task_is_asked_of_its_manager(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    (task,) = site.do(site.store.find(by(queue="mail"), limit=1)).tasks
    number = manager(site, "", task=task.id)
    asked = list[str]()

    async def read_stack(store: Any, text: str, make_id: Any, *, by: str) -> StackReading:
        asked.append(text)
        lines = ("app.py:3 in <module>", "app.py:9 in work")
        stack = TaskStack(ask="a", task=text, worker="default-1", at=site.store.clock.now(), lines=lines, note="")
        return StackReading(task=task, host="site", stack=stack)

    monkeypatch.setattr(workers, "read_stack", read_stack)
    path = f"/workers/{number}/default-1"
    assert asked == []
    assert f"stack={task.id}" in page(site, path)
    text = page(site, f"{path}?stack={task.id}")
    assert "app.py:3 in &lt;module&gt;" in text
    # To read the page again would ask again.
    assert 'data-topics=""' in text
    assert asked == [task.id]
    assert "has ended meanwhile" in page(site, f"{path}?stack=another")
    assert asked == [task.id]

    async def silent(*_: Any, **__: Any) -> StackReading:
        raise TimedOutWaiting("the manager did not answer", why="it may be gone", fix="pitboss ps")

    monkeypatch.setattr(workers, "read_stack", silent)
    assert "the manager did not answer" in page(site, f"{path}?stack={task.id}")


def test_secrets_are_on_no_page(site: Site) -> None:
    for path in ("", "/resources", *DETAILS):
        assert SECRET not in page(site, path), path
    assert "***" in page(site, "/resources/accounts/a-1")


def test_a_pool_shows_its_uses_by_destination(site: Site) -> None:
    text = page(site, "/resources/accounts")
    assert "By destination, last hour" in text
    assert text.index('title="shop.example"') < text.index('title="parts.example"')


def test_members_are_filtered_by_condition_name_and_label(site: Site) -> None:
    assert page(site, "/resources/accounts").count('<tr id="member-') == 9
    assert page(site, "/resources/accounts?condition=blacklisted").count('<tr id="member-') >= 1
    assert page(site, "/resources/accounts?q=A-3").count('<tr id="member-') == 1
    assert page(site, "/resources/accounts?q=fast").count('<tr id="member-') == 4


def test_a_member_is_disabled_enabled_cleared_and_removed(site: Site) -> None:
    one = "/resource-pools/accounts/members/a-2"
    assert member(site, "a-2").record.blacklistings
    act(site, f"{one}/reset")
    assert not member(site, "a-2").record.blacklistings
    act(site, f"{one}/disable")
    assert (member(site, "a-2").enabled, member(site, "a-2").disabled_reason) == (False, "disabled by local")
    act(site, f"{one}/enable")
    assert member(site, "a-2").enabled
    assert [entry.why for entry in member(site, "a-2").record.history[-2:]] == ["disabled by local", "enabled by local"]
    act(site, one, _method="DELETE", _confirm="Remove?", _sure="1")
    assert site.do(site.store.resources("accounts", ["a-2"])) == []


def test_limits_are_set_by_the_fields_that_are_filled_and_withdrawn(site: Site) -> None:
    fields = {"limits.per_hour": "20", "limits.min_delay": "3s", "limits.per_minute": "", "_method": "PATCH"}
    act(site, "/resource-pools/accounts", **fields)
    limits = site.do(site.store.resource_pools())[0].limited
    assert limits is not None
    assert limits.values == {"per_minute": 50, "per_hour": 20, "min_delay": 3 * SECOND}
    wrong = {"limits.per_hour": "many", "_method": "PATCH"}
    told = sent(site, "/resource-pools/accounts", wrong, HX_Request="true")
    assert (told.status_code, "per_hour" in told.json()["text"]) == (400, True)
    act(site, "/resource-pools/accounts", reset="1", _method="PATCH")
    assert site.do(site.store.resource_pools())[0].limited in (None, msgspec.structs.replace(limits, values={}))


def test_a_key_is_moved_pinned_and_unpinned(site: Site) -> None:
    act(site, "/partitions/targets/pin", key="CA", slot="default/1")
    assert (key(site, "CA").owner, key(site, "CA").pinned) == ("default/1", "default/1")
    refused = sent(site, "/partitions/targets/move", {"key": "CA", "slot": "default/0"}, HX_Request="true")
    assert (refused.status_code, "pinned to default/1" in refused.json()["why"]) == (409, True)
    act(site, "/partitions/targets/unpin", key="CA")
    assert key(site, "CA").pinned is None
    told = act(site, "/partitions/targets/move", key="CA", slot="0").json()
    assert (key(site, "CA").owner, told["text"]) == ("default/0", "Key belongs to default/0")
    act(site, "/partitions/targets/pin", key=HOSTILE, slot="1")
    assert key(site, HOSTILE).pinned == "default/1"
    (entry,) = site.do(site.store.audit_log(limit=1))
    assert (entry.act, entry.target) == ("partitions pin", "targets")


def test_keys_are_filtered_by_name_and_slot(site: Site) -> None:
    assert page(site, "/partitions/targets").count('<tr id="key-') == 5
    assert page(site, "/partitions/targets?q=ca").count('<tr id="key-') == 1
    assert page(site, "/partitions/targets?slot=default/1").count('<tr id="key-') == 1


def test_partitions_are_told_over_http(site: Site) -> None:
    found = site.http.get("/api/partitions/targets").json()["data"]
    assert [one["slot"] for one in found["slots"]] == ["default/0", "default/1", "default/2"]
    assert site.http.get("/api/partitions/mail").status_code == 400
    assert site.http.get("/api/partitions/nope").status_code == 404
    unknown = site.http.post("/api/partitions/targets/move", json={"key": "ZZ", "slot": "0"})
    assert (unknown.status_code, unknown.json()["error"]) == (404, 'queue "targets" has no key "ZZ"')


def test_a_viewer_sees_no_act_and_no_stack_and_may_do_none() -> None:
    with Site(GateRules(local=True)) as site:
        site.do(furnish(site.store, site.server.make_id))
        site.http.cookies.set("pitboss_key", site.key("viewer"))
        for path in ("/workers", "/resources", "/partitions", *DETAILS):
            text = page(site, path)
            assert "/ui/act/" not in text, path
            assert "stack=" not in text, path
        assert "app.py" not in page(site, "/workers/1/default-2?stack=x")
        for path in (
            "/worker-pools/default/scale",
            "/managers/1/stop",
            "/resource-pools/accounts/members/a-1/reset",
            "/partitions/targets/pin",
        ):
            assert sent(site, path, {"key": "CA", "slot": "0", "size": "1"}, HX_Request="true").status_code == 403
        assert orders(site) == {}


def test_an_operator_may_reset_a_member_but_not_remove_it() -> None:
    with Site(GateRules(local=True)) as site:
        site.do(furnish(site.store, site.server.make_id))
        site.http.cookies.set("pitboss_key", site.key("operator"))
        text = page(site, "/resources/accounts/a-2")
        assert "Clear failures" in text
        assert "Remove…" not in text


def test_keys_are_not_counted_where_very_many_tasks_wait(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    new = [
        NewTask(id=site.server.make_id(), handler="visit", queue="targets", params=f'{{"state":"{state}"}}')
        for state in ("CA", "CA", "NY")
    ]
    site.do(site.store.put(new))
    text = page(site, "/partitions/targets")
    assert "Slot default/0 has 67 % of the work" in text
    monkeypatch.setattr(partitions, "_MOST_COUNTED", 2)
    text = page(site, "/partitions/targets")
    assert "Slot default/0 has" not in text
    assert "does not count them by key" in text
    assert page(site, "/partitions").count("targets") > 0
