"""What pages of tasks, failures and operations do, through their own forms."""

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from pitboss.http.gate import GateRules
from pitboss.model.duration import SECOND
from pitboss.model.errors import NotFound
from pitboss.model.filter import by
from pitboss.model.operation import NewOperation, OperationStatus, Verb
from pitboss.model.session import SessionInfo
from pitboss.model.snapshot import CurrentTask, PoolFigures, Snapshot, WorkerFigures, WorkerState
from pitboss.model.stack import TaskStack
from pitboss.model.states import State
from pitboss.model.task import NewTask, Task
from pitboss.operate.stacks import StackReading
from pitboss.telemetry.logs.files import Appender, worker_file
from pitboss.telemetry.logs.lines import encoded, stamp
from tests.http.site import Site
from tests.http.web import lives
from tests.http.web.pages import HOSTILE, furnish, inline
from tests.http.web.test_acts import sent

_FORM = re.compile(r'<form class="(?:act|form)" method="post" action="([^"]*)"[^>]*>(.*?)</form>', re.DOTALL)
_FIELD = re.compile(r'<(?:input|textarea)[^>]* name="([^"]+)"(?:[^>]* value="([^"]*)"|[^>]*>([^<]*)</textarea>)?')


@pytest.fixture(params=["memory", "sqlite"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/pitboss.db"
    with Site(url=url) as site:
        site.do(furnish(site.store, site.server.make_id))
        yield site


def text_of(site: Site, path: str) -> str:
    site.dashboard._readings.clear()
    answer = site.http.get(f"/ui{path}")
    assert answer.status_code == 200, answer.text[-500:]
    return answer.text


def filled(page: str, act: str, **fields: str) -> tuple[str, dict[str, str]]:
    """The form of the page that posts to this act, as a browser sends it after the question was answered."""
    body = next(inner for action, inner in _FORM.findall(page) if unescape(action).endswith(f"/ui/act{act}"))
    found = {unescape(name): unescape(value or inner) for name, value, inner in _FIELD.findall(body)}
    return act, found | fields | {"_sure": "1"}


def post(site: Site, form: tuple[str, dict[str, str]]) -> httpx.Response:
    return sent(site, form[0], form[1])


def stored(site: Site, task: str) -> Task:
    (found,) = site.do(site.store.get([task]))
    assert found is not None
    return found


def state(site: Site, task: str) -> State:
    return stored(site, task).state


def test_a_waiting_task_says_why_and_can_be_changed_and_cancelled(site: Site) -> None:
    path = f"/tasks/{lives.WAITING}"
    page = text_of(site, path)
    assert 'class="steps"' in page
    assert "Where it is" not in page
    done = post(site, filled(page, path, priority="-5", tag="late, eu"))
    assert (done.status_code, done.headers["location"]) == (303, f"/ui{path}")
    task = stored(site, lives.WAITING)
    assert (task.priority, task.tags[-2:]) == (-5, ("late", "eu"))
    assert "Are you sure?" in sent(site, f"{path}/cancel", {"_confirm": "Cancel?"}).text
    post(site, filled(text_of(site, path), f"{path}/cancel"))
    assert state(site, lives.WAITING) is State.CANCELLED


def test_a_failed_task_shows_its_runs_and_can_be_retried_and_deleted(site: Site) -> None:
    path = f"/tasks/{lives.FAILED}"
    page = text_of(site, path)
    assert "Run 1" in page
    assert "KeyError" in page
    assert "/ui/failures/abcd1234" in page
    post(site, filled(page, f"{path}/retry"))
    assert state(site, lives.FAILED) is State.PENDING
    again = text_of(site, path)
    assert "Run 1" in again
    done = text_of(site, f"/tasks/{lives.DONE}")
    assert "size" in done
    gone = post(site, filled(done, f"/tasks/{lives.DONE}"))
    assert gone.headers["location"] == "/ui/tasks"
    assert site.http.get(f"/ui/tasks/{lives.DONE}").status_code == 404


def test_a_task_like_it_is_enqueued_with_other_params(site: Site) -> None:
    page = text_of(site, f"/tasks/{lives.FAILED}")
    act, fields = filled(page, "/tasks", params='{"to": "b", "size": 6}')
    assert fields["type"] == "fetch"
    # Its hostile tag is refused by the route, in its words.
    assert "tags" in sent(site, act, fields, HX_Request="true").json()["text"]
    answer = sent(site, act, fields | {"tags": "eu, again"})
    new = answer.headers["location"].removeprefix("/ui/tasks/")
    task = stored(site, new)
    assert (task.params, task.queue, task.tags) == ('{"size":6,"to":"b"}', "lives", ("eu", "again"))
    told = sent(site, act, fields | {"tags": "", "params": '{"to": "c"}'}, HX_Request="true").json()
    assert told["go"].startswith("/ui/tasks/0")
    wrong = sent(site, act, fields | {"tags": "", "params": "[1"}, HX_Request="true")
    assert wrong.status_code == 400


def test_a_task_knows_its_relatives(site: Site) -> None:
    assert f"/ui/tasks/{lives.CHILD}" in text_of(site, f"/tasks/{lives.DONE}")
    assert f"/ui/tasks/{lives.DONE}" in text_of(site, f"/tasks/{lives.CHILD}")


def test_a_running_task_whose_manager_does_not_answer_says_so(site: Site) -> None:
    page = text_of(site, f"/tasks/{lives.RUNNING}?stack=1")
    assert "did not answer" in page
    assert "40 %" in page


def test_the_pages_of_a_task_and_of_its_worker_share_why_there_is_no_stack(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object, **__: object) -> Task:
        raise NotFound("there is no such task", why="it was deleted meanwhile", fix="reload the page")

    monkeypatch.setattr("pitboss.operate.stacks.find_task", refuse)
    session = site.do(site.store.open_session(SessionInfo(host="site", pid=3, ttl=3600 * SECOND)))
    running = CurrentTask(id=lives.RUNNING, handler="fetch")
    worker = WorkerFigures(name="w-1", state=WorkerState.PROCESSING, running=1, tasks=(running,), pool="default")
    snapshot = Snapshot(pools=(PoolFigures(name="default", concurrency=1, wanted=1),), workers=(worker,))
    site.do(site.store.renew(session.number, msgspec.json.encode(snapshot).decode()))
    for path in (f"/tasks/{lives.RUNNING}?stack=1", f"/workers/{session.number}/w-1?stack={lives.RUNNING}"):
        answer = site.http.get(f"/ui{path}")
        assert answer.status_code == 200
        assert "it was deleted meanwhile" in answer.text


def test_a_running_task_shows_its_stack(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[str]()

    async def read(store: object, text: str, make_id: object, *, by: str) -> StackReading:
        asked.append(by)
        lines = (f'  File "{HOSTILE}", line 3, in fetch',)
        stack = TaskStack(task=text, ask="a", worker="w-1", lines=lines, note=HOSTILE, at=site.store.clock.now())
        return StackReading(task=task, host="box9", stack=stack)

    task = stored(site, lives.RUNNING)
    monkeypatch.setattr("pitboss.http.web.pages.workers.read_stack", read)
    path = f"/ui/tasks/{lives.RUNNING}"
    assert "Show its stack" in site.http.get(path).text
    pages = [site.http.get(f"{path}?stack=1").text for _ in range(3)]
    assert "in w-1 on box9" in pages[0]
    assert "line 3, in fetch" in pages[0]
    assert inline(pages[0]) == []
    # A page that reads itself again does not ask the manager each time. The page of its worker shares the answer.
    assert asked == ["local (http 127.0.0.1)"]


@pytest.mark.parametrize(("boot", "here"), [("", True), ("another", False)])
def test_another_machine_of_the_same_name_is_not_this_host(site: Site, boot: str, here: bool) -> None:
    site.server.host = site.server._host = "box1"
    site.server._boot_id = boot
    assert ("Its logs are on box1" not in text_of(site, f"/tasks/{lives.FAILED}")) is here


def test_lines_of_its_log_are_shown_if_they_are_on_this_host(site: Site, tmp_path: Path) -> None:
    path = f"/tasks/{lives.FAILED}"
    assert "Its logs are on box1" in text_of(site, path)
    folder = tmp_path / "logs"
    now = site.server.clock.wall() / SECOND
    line = {"time": stamp(now), "level": "error", "logger": "shop", "event": "<b>refused</b>", "worker": "a-1"}
    for task in (lives.FAILED, lives.DONE):
        appender = Appender(worker_file(folder, "a-1"), size=10**6, age=10**15, kept=9)
        appender.write(encoded(line | {"task_id": task, "event": f"<b>refused</b> {task}"}), now)
        appender.close()
    session = site.do(site.store.open_session(SessionInfo(host="site", pid=3, ttl=3600 * SECOND)))
    snapshot = msgspec.json.encode(Snapshot(logs=str(folder))).decode()
    site.do(site.store.renew(session.number, snapshot))
    page = text_of(site, path)
    assert f"&lt;b&gt;refused&lt;/b&gt; {lives.FAILED}" in page
    log = page.partition('aria-label="Log">')[2].partition("</pre>")[0]
    assert log.startswith('<time datetime="')
    assert 'data-t="date"' in log
    assert f"&lt;b&gt;refused&lt;/b&gt; {lives.DONE}" not in page


def test_all_that_match_are_acted_on_with_their_count(site: Site) -> None:
    assert "Select all 20 that match" in text_of(site, "/tasks?q=queue:media")
    page = text_of(site, "/tasks?q=queue:media&all=1")
    assert 'name="_pick"' not in page
    assert "Cancel 20…" in page
    assert "Retry 0" not in page
    act, fields = filled(page, "/tasks/change", priority="7")
    assert fields["filter"] == "queue:media"
    sent(site, act, fields)
    assert {one.priority for one in site.do(site.store.find(by(queue="media"))).tasks} == {7}
    asked = sent(site, "/tasks/cancel", {"filter": "queue:media", "_confirm": "Cancel 20 tasks?"})
    assert "Cancel 20 tasks?" in asked.text
    done = post(site, filled(page, "/tasks/cancel"))
    # They were few, so that there is no operation to go to.
    assert done.headers["location"] == "/ui/tasks?q=queue%3Amedia&all=1"
    assert "20 tasks cancelled" in site.http.get("/ui/tasks").text


def test_the_question_about_selected_tasks_has_their_number(site: Site) -> None:
    fields = [("_pick", lives.FAILED), ("_pick", lives.ALIKE), ("_confirm", "Delete them?")]
    assert "Delete them? (2 selected)" in sent(site, "/tasks/delete", fields).text


def test_many_tasks_become_an_operation_which_is_shown_and_stopped(site: Site) -> None:
    make = site.server.make_id
    many = [NewTask(id=make(), handler="send", queue="many") for _ in range(1001)]
    site.do(site.store.put(many))
    page = text_of(site, "/tasks?q=queue:many&all=1")
    path = post(site, filled(page, "/tasks/cancel")).headers["location"].removeprefix("/ui")
    assert path.startswith("/operations/0")
    shown = text_of(site, path)
    assert "No manager leads" in shown
    assert path in text_of(site, "/operations?status=running")
    assert f'href="/ui{path}"' in text_of(site, "/tasks")
    post(site, filled(shown, f"{path}/rate", rate="5/s"))
    (one,) = site.do(site.store.operations([path.removeprefix("/operations/")]))
    assert one.rate[0].count == 5
    post(site, filled(shown, f"{path}/cancel"))
    over = text_of(site, path)
    assert "1,001 tasks</b>" in over
    assert "cancelled by local" in over
    assert f"/ui/act{path}/cancel" not in over


def test_a_cause_is_retried_at_a_rate_or_discarded(site: Site) -> None:
    assert "/ui/failures/abcd1234" in text_of(site, "/failures")
    assert "/ui/failures/-" in text_of(site, "/failures")
    page = text_of(site, "/failures/abcd")
    assert "Traceback" in page
    act, fields = filled(page, "/tasks/retry")
    assert fields["filter"] == "state:failed fingerprint:abcd1234"
    answer = sent(site, act, fields | {"rate": "10/s", "stop_on_failures": "3", "_go": "/ui/operations/{operation}"})
    assert answer.headers["location"].startswith("/ui/operations/0")
    (one, *_) = site.do(site.store.operations(statuses=[OperationStatus.RUNNING]))
    assert (one.matched, one.stop_on_failures, one.rate[0].count) == (1, 3, 10)
    gone = post(site, filled(page, "/tasks/delete"))
    assert gone.headers["location"] == "/ui/failures"
    assert site.http.get("/ui/failures/abcd1234").status_code == 404


def test_failures_without_a_fingerprint_are_a_cause_too(site: Site) -> None:
    act, fields = filled(text_of(site, "/failures/-"), "/tasks/delete")
    assert fields["filter"] == 'state:failed fingerprint:""'
    sent(site, act, fields)
    assert site.do(site.store.get([lives.ALIKE])) == [None]
    assert state(site, lives.FAILED) is State.FAILED


def test_an_operation_says_what_it_left_out(site: Site) -> None:
    new = NewOperation(id=site.server.make_id(), verb=Verb.DISCARD, wanted=by(queue="lives"), matched=4)
    site.do(site.store.begin_operation(new))
    page = text_of(site, f"/operations/{new.id}")
    while "running" in page.partition("</h2>")[2][:300]:
        (one,) = site.do(site.store.operations([new.id]))
        site.do(site.store.advance_operation(new.id, one.cursor, limit=100))
        page = text_of(site, f"/operations/{new.id}")
    assert "1 task</b>" in page
    assert "no longer matched" in page


@pytest.mark.parametrize(
    "path",
    [
        "/tasks/nonsense",
        "/tasks/00000000-0000-7000-8000-000000000000",
        "/tasks/0%00",
        "/failures/zz",
        "/operations/x",
        "/operations/abcdef0123",
    ],
)
def test_unknown_names_are_plain_pages_that_help(site: Site, path: str) -> None:
    answer = site.http.get(f"/ui{path}")
    assert answer.status_code == 404
    assert "pitboss" in answer.text


def test_viewers_see_no_act_and_no_stack() -> None:
    with Site(GateRules(local=True)) as site:
        site.do(furnish(site.store, site.server.make_id))
        site.http.cookies.set("pitboss_key", site.key("viewer"))
        paths: list[Any] = [*lives.PAGES, *lives.DETAILS]
        for path in paths:
            page = text_of(site, path)
            assert "/ui/act/" not in page, path
            assert "Where it is" not in page
            assert "Show its stack" not in page
        for act in (
            "/tasks/change",
            "/tasks/delete",
            f"/tasks/{lives.FAILED}/retry",
            f"/operations/{lives.OPERATION}/cancel",
        ):
            assert sent(site, act, {"filter": "state:failed"}, HX_Request="true").status_code == 403
        assert site.http.get(f"/ui/tasks/{lives.RUNNING}?stack=1").status_code == 200


def test_the_tabs_count_within_the_filter(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = re.compile(r'class="n">([\d,]+)</span></a>')
    whole = counts.findall(text_of(site, "/tasks").partition('class="tabs"')[2])
    mail = counts.findall(text_of(site, "/tasks?q=queue:mail").partition('class="tabs"')[2])
    for place, name in ((0, {}), (6, {"state": "failed"})):
        assert int(mail[place]) == site.do(site.store.count(by(queue="mail", **name))).number
    assert int(mail[0]) < int(whole[0])
    monkeypatch.setattr("pitboss.http.web.pages.tasks._COUNTED", 1)
    site.dashboard._readings.clear()
    tabs = text_of(site, "/tasks?q=attempts:<9").partition('class="tabs"')[2].partition("</nav>")[0]
    assert counts.findall(tabs) == []


def test_a_task_with_long_params_says_where_all_of_them_are(site: Site) -> None:
    task = site.server.make_id()
    params = f"""{{"a":"{"x" * 20_000}"}}"""
    site.do(site.store.put([NewTask(id=task, handler="send", queue="mail", params=params)]))
    page = text_of(site, f"/tasks/{task}")
    assert "Too long to be shown whole" in page
    assert f"pitboss tasks show {task[-12:]} --json" in page
    assert "Change and run…" not in page


def test_a_filter_is_saved_as_a_view_and_removed(site: Site) -> None:
    page = text_of(site, "/tasks?q=queue:mail+state:failed")
    act, fields = filled(page, "/views", name="Mail & <b>", shared="true")
    assert fields["filter"] == "queue:mail state:failed"
    assert sent(site, act, fields).status_code == 303
    page = text_of(site, "/tasks")
    assert "Mail &amp; &lt;b&gt;" in page
    assert "/ui/tasks?q=queue%3Amail+state%3Afailed" in page
    assert sent(site, *filled(page, "/views")).status_code == 303
    assert "remove-view-" not in text_of(site, "/tasks")
    acts = [one.act for one in site.do(site.store.audit_log(limit=2))]
    assert acts == ["views remove", "views save"]


def test_a_view_of_one_person_is_seen_by_no_other() -> None:
    with Site(GateRules(local=True)) as site:
        ana, ben, viewer = site.key("operator", name="ana"), site.key("operator"), site.key("viewer")
        body = {"name": "mine", "filter": "queue:mail"}
        for key, code in ((viewer, 403), (ana, 201)):
            assert site.http.post("/api/views", json=body, headers={"X-API-Key": key}).status_code == code
        for key, count in ((ana, 1), (ben, 0), (viewer, 0)):
            assert site.http.get("/api/views", headers={"X-API-Key": key}).json()["data"]["count"] == count
        gone = site.http.delete("/api/views", params={"name": "mine"}, headers={"X-API-Key": ben})
        assert gone.status_code == 404


def test_tasks_are_exported_as_lines(site: Site) -> None:
    for answer in (
        site.http.get("/ui/export", params={"q": "queue:mail"}),
        site.http.get("/api/tasks/export", params={"filter": "queue:mail"}),
    ):
        assert answer.headers["content-type"].startswith("application/x-ndjson")
        found = [msgspec.json.decode(line) for line in answer.content.splitlines()]
        assert {one["queue"] for one in found} == {"mail"}
        assert len(found) == site.do(site.store.count(by(queue="mail"))).number
    assert site.http.get("/api/tasks/export", params={"filter": "x:"}).status_code == 400
    assert site.http.get("/ui/export", params={"q": "x:"}).status_code == 400
    assert f"/ui/tasks/{lives.WAITING}" in text_of(site, f"/tasks?q={lives.WAITING}")


def test_the_palette_has_commands_that_ask_first(site: Site) -> None:
    found = {one["name"]: one["go"] for one in site.http.get("/ui/palette").json() if one["kind"] == "command"}
    assert {"resume queue mail", "pause queue media"} <= found.keys()
    page = site.http.get(found["pause queue media"]).text
    assert "Pause queue media?" in page
    assert 'action="/ui/act/queues/media/pause"' in page
    assert site.http.get("/ui/command?name=pause+queue+nope").status_code == 404
