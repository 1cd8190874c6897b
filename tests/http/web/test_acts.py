"""Forms become requests of the API: its roles, checks and audit log count, and where the form comes from."""

import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from pitboss.http.gate import GateRules
from pitboss.http.web.remedies import _ACTS
from pitboss.model.alert_look import AlertNotes, ChannelNote, notes_text
from pitboss.model.alert_rules import rules_of
from pitboss.model.filter import by
from pitboss.model.session import SessionInfo
from pitboss.model.verdict import action
from tests.http.site import Site
from tests.http.web.batches import BATCHES, EVENT
from tests.http.web.pages import furnish


@pytest.fixture
def site() -> Iterator[Site]:
    with Site() as site:
        site.do(furnish(site.store, site.server.make_id))
        yield site


def sent(site: Site, path: str, fields: Any = (), **headers: str) -> httpx.Response:
    own = {"Origin": site.url, "Sec-Fetch-Site": "same-origin", "Content-Type": "application/x-www-form-urlencoded"}
    content = str(httpx.QueryParams(fields))
    wanted = {name.replace("_", "-"): text for name, text in headers.items()}
    return site.http.post(f"/ui/act{path}", content=content, headers={**own, **wanted})


def queue(site: Site, name: str) -> Any:
    return next(one for one in site.do(site.store.queues()) if one.name == name)


def test_an_act_without_javascript_goes_back_to_its_page_with_a_message(site: Site) -> None:
    fields = {"reason": "<b>deploy</b>", "_back": "/ui/queues?q=m", "_done": "Queue <i>media</i> paused"}
    answer = sent(site, "/queues/media/pause", fields)
    assert (answer.status_code, answer.headers["location"]) == (303, "/ui/queues?q=m")
    assert queue(site, "media").paused_reason == "<b>deploy</b>"
    # A tab that reads itself again leaves the message to the page that is opened.
    assert "paused</b>" not in site.http.get("/ui/queues", headers={"HX-Request": "true"}).text
    page = site.http.get("/ui/queues")
    assert "Queue &lt;i&gt;media&lt;/i&gt; paused" in page.text
    site.http.cookies.clear()
    assert "paused</b>" not in site.http.get("/ui/queues").text


def test_an_act_with_javascript_answers_with_what_to_say(site: Site) -> None:
    told = sent(site, "/queues/media/pause", HX_Request="true")
    said = told.json()
    assert said.pop("undo").startswith("/ui/act/activity/")
    assert said == {"ok": True, "text": "Queue paused", "why": "", "fix": ""}
    wrong = sent(site, "/queues/nope/pause", HX_Request="true")
    assert (wrong.status_code, wrong.json()["ok"]) == (404, False)
    assert "mail, media, scrape" in wrong.json()["why"]


def test_an_act_is_in_the_audit_log(site: Site) -> None:
    sent(site, "/queues/media/pause", {"reason": "deploy"})
    (entry,) = site.do(site.store.audit_log(limit=1))
    assert (entry.act, entry.target, entry.who, entry.details) == (
        "queues pause",
        "media",
        "local",
        '{"before":{"paused":false},"reason":"deploy"}',
    )


def test_texts_of_fields_become_what_the_route_wants(site: Site) -> None:
    sent(site, "/queues/media", {"_method": "PATCH", "capacity": "500", "rate": "10/s", "max_per_key": ""})
    changed = queue(site, "media")
    assert (changed.capacity, changed.rate[0].count, changed.max_per_key) == (500, 10, None)
    sent(site, "/queues/media", {"_method": "PATCH", "capacity": "_null", "rate": "_null"})
    assert (queue(site, "media").capacity, queue(site, "media").rate) == (None, ())
    wrong = sent(site, "/queues/media", {"_method": "PATCH", "capacity": "many"}, HX_Request="true")
    assert wrong.status_code == 400
    assert "capacity" in wrong.json()["text"]


def test_selected_tasks_are_the_filter_of_a_bulk_act(site: Site) -> None:
    found = site.do(site.store.find(by(queue="media"), limit=3)).tasks
    fields = [*(("_pick", task.id) for task in found), ("_confirm", "Cancel them?"), ("_sure", "1")]
    assert sent(site, "/tasks/cancel", fields).status_code == 303
    cancelled = site.do(site.store.find(by(state="cancelled"), limit=10)).tasks
    assert {task.id for task in cancelled} == {task.id for task in found}


def test_what_cannot_be_undone_is_asked_first_also_without_javascript(site: Site) -> None:
    asked = sent(site, "/queues/media/pause", {"_confirm": "Pause <b>it</b>?", "reason": "x", "_back": "/ui/queues"})
    assert asked.status_code == 200
    assert "Pause &lt;b&gt;it&lt;/b&gt;?" in asked.text
    assert 'name="reason" value="x"' in asked.text
    assert not queue(site, "media").paused
    sent(site, "/queues/media/pause", {"_confirm": "Pause it?", "_sure": "1"})
    assert queue(site, "media").paused


@pytest.mark.parametrize(
    "back", ["https://evil.example/", "//evil.example/ui", "/api/keys", "/ui\\..", "/uix", "/ui/\r\nx: y"]
)
def test_an_act_goes_back_to_this_dashboard_only(site: Site, back: str) -> None:
    assert sent(site, "/queues/media/pause", {"_back": back}).headers["location"] == "/ui"


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"},
        {"Origin": "https://evil.example", "Sec-Fetch-Site": "same-origin"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "null"},
        {},
    ],
)
def test_forms_of_other_sites_are_refused(site: Site, headers: dict[str, str]) -> None:
    kind = {"Content-Type": "application/x-www-form-urlencoded"}
    answer = site.http.post("/ui/act/queues/media/pause", content="reason=x", headers={**kind, **headers})
    assert answer.status_code == 403
    assert not queue(site, "media").paused


def test_roles_count_in_the_endpoint_and_buttons_are_left_out() -> None:
    with Site(GateRules(local=True)) as site:
        site.do(furnish(site.store, site.server.make_id))
        viewer, operator = site.key("viewer"), site.key("operator")
        for key, code, shown in ((viewer, 403, False), (operator, 200, True)):
            site.http.cookies.set("pitboss_key", key)
            assert ("/ui/act/" in site.http.get("/ui/queues").text) is shown
            assert sent(site, "/queues/media/pause", HX_Request="true").status_code == code
            assert queue(site, "media").paused is shown
            site.http.cookies.clear()


def test_an_act_needs_a_route_and_a_form(site: Site) -> None:
    assert sent(site, "/nothing/at/all", HX_Request="true").status_code == 404
    assert sent(site, "/queues/media/pause", {"_method": "TRACE"}, HX_Request="true").status_code == 405
    assert sent(site, "/queues/media/pause", Content_Type="multipart/form-data", HX_Request="true").status_code == 415
    assert site.http.get("/ui/act/queues/media/pause").status_code == 404
    assert not queue(site, "media").paused


def look_at_alerts(site: Site) -> None:
    """A manager leads, has looked at the rules, and has a channel."""
    session = site.do(site.store.open_session(SessionInfo(host="box1", pid=7)))
    term = site.do(site.store.campaign(session.number)).term
    channels = {"ops": ChannelNote(type="webhook"), "log": ChannelNote(type="log")}
    notes = AlertNotes(at=site.store.clock.now(), rules=rules_of({}), channels=channels)
    site.do(site.store.note_alerts(notes_text(notes), [], version=0, term=term))


def test_an_alert_is_silenced_and_told_again(site: Site) -> None:
    look_at_alerts(site)
    page = site.http.get("/ui/alerts").text
    assert '/ui/act/alerts/silences"' in page
    sent(site, "/alerts/silences", {"rule": "disk", "for": "3600", "reason": "<b>known</b>", "_back": "/ui/alerts"})
    (silence,) = site.do(site.store.alert_board()).silences
    assert (silence.rule, silence.reason) == ("disk", "<b>known</b>")
    assert "&lt;b&gt;known&lt;/b&gt;" in site.http.get("/ui/alerts").text
    sent(site, "/alerts/silences/disk", {"_method": "DELETE"})
    assert site.do(site.store.alert_board()).silences == ()


def test_what_a_person_puts_is_in_the_audit_log(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    look_at_alerts(site)
    put = sent(site, "/tasks", {"type": "send", "params": "{}", "queue": "mail", "_go": "/ui/tasks/{id}"})
    task = put.headers["location"].removeprefix("/ui/tasks/")
    (entry,) = site.do(site.store.audit_log(limit=1))
    assert (entry.act, entry.target, entry.who, entry.details) == ("tasks create", task, "local", '{"type":"send"}')
    # A program that puts tasks leaves no line for each of them.
    assert site.http.post("/api/tasks", json={"type": "send", "params": {}}).status_code == 201
    assert site.do(site.store.audit_log(limit=1)) == [entry]
    # No process takes the test.
    monkeypatch.setattr("pitboss.http.api.alerts._TEST_WITHIN", 0)
    sent(site, "/alerts/channels/ops/test")
    tested, before = site.do(site.store.audit_log(limit=2))
    assert (tested.act, tested.target, before) == ("alerts test", "ops", entry)


def test_a_channel_that_writes_to_the_log_needs_no_test(site: Site) -> None:
    look_at_alerts(site)
    page = site.http.get("/ui/alerts").text
    assert "/ui/act/alerts/channels/ops/test" in page
    assert "/ui/act/alerts/channels/log/test" not in page
    told = sent(site, "/alerts/channels/log/test", HX_Request="true")
    assert (told.status_code, "needs no test" in told.json()["text"]) == (400, True)
    assert sent(site, "/alerts/channels/none/test", HX_Request="true").status_code == 404


def test_a_key_is_shown_once_and_revoked() -> None:
    with Site(GateRules(local=True)) as site:
        site.http.cookies.set("pitboss_key", site.key("admin", name="boss"))
        made = sent(site, "/keys", [("name", "ana"), ("roles", "viewer"), ("roles", "operator"), ("_show", "key")])
        found = re.search(r"<pre>(pbk_[^<]+)</pre>", made.text)
        assert found is not None
        page = site.http.get("/ui/keys").text
        assert found[1] not in page
        assert "viewer, operator" in page
        own = {"Cookie": f"pitboss_key={found[1]}"}
        site.http.cookies.clear()
        assert site.http.get("/ui", headers=own).status_code == 200
        assert site.http.get("/ui/keys", headers=own).status_code == 403
        site.http.cookies.set("pitboss_key", site.key("admin", name="chief"))
        sent(site, "/keys/ana", {"_method": "DELETE"})
        site.http.cookies.clear()
        assert site.http.get("/ui", headers=own).status_code == 303


def test_an_operator_undoes_an_act_from_its_message_and_an_admin_in_the_log() -> None:
    with Site(GateRules(local=True)) as site:
        site.do(furnish(site.store, site.server.make_id))
        site.http.cookies.set("pitboss_key", site.key("operator"))
        told = sent(site, "/queues/media/pause", HX_Request="true").json()
        act = told["undo"].removeprefix("/ui/act")
        assert sent(site, act, HX_Request="true").json()["text"] == "Undone: the pause of queue media"
        assert not queue(site, "media").paused
        assert sent(site, act, HX_Request="true").status_code == 409
        sent(site, "/queues/media", {"_method": "PATCH", "capacity": "7", "_back": "/ui/queues/media"})
        page = site.http.get("/ui/queues/media").text
        found = re.search(r'class="toast is-ok".*?action="/ui/act(/activity/[^"]+)"', page, re.DOTALL)
        assert found is not None
        assert "/undo" not in site.http.get("/ui/queues/media").text
        site.http.cookies.set("pitboss_key", site.key("viewer"))
        assert sent(site, found[1], HX_Request="true").status_code == 403
        site.http.cookies.set("pitboss_key", site.key("admin"))
        for path in ("/ui/activity", "/ui"):
            assert f'action="/ui/act{found[1]}"' in site.http.get(path).text
        sent(site, found[1])
        assert queue(site, "media").capacity == 50


@pytest.mark.parametrize(
    ("command", "path", "fields"),
    [
        ("queues resume mail", "/queues/mail/resume", {}),
        ("alerts silence disk --for 30m", "/alerts/silences", {"rule": "disk", "for": "1800"}),
        ("resources reset proxies --all", "/resource-pools/proxies/reset", {}),
        ("resources reset proxies p-1", "/resource-pools/proxies/members/p-1/reset", {}),
        ("resources enable proxies --all", "/resource-pools/proxies/enable", {}),
        ("batches resume 0a1b2c3d", "/batches/0a1b2c3d/resume", {}),
        ("batches start 0a1b2c3d", "/batches/0a1b2c3d/start", {}),
        ("batches move 0a1b2c3d top", "/batches/0a1b2c3d/move", {"to": "top"}),
        ("tasks cancel 0a1b", "/tasks/0a1b/cancel", {}),
        ("pools scale mail 3 --host box2", "/worker-pools/mail/scale", {"size": "3", "host": "box2"}),
        ("drain --undo --manager 7", "/managers/7/undrain", {}),
    ],
)
def test_a_command_that_helps_is_a_button_with_all_that_it_says(command: str, path: str, fields: Any) -> None:
    found = action(f"pitboss {command}")
    assert found is not None
    act = _ACTS[found.act](found)
    assert act is not None
    assert (act.path, dict(act.fields)) == (path, fields)


@pytest.mark.parametrize(
    "command", ["queues limit mail --rate …", "resources add proxies NAME", "resources reset NAME"]
)
def test_a_command_that_must_be_completed_is_no_button(command: str) -> None:
    found = action(f"pitboss {command}")
    assert found is not None
    assert not found.complete


def test_all_members_of_a_pool_are_reset_at_once(site: Site) -> None:
    before = site.do(site.store.resources("proxies"))
    said = sent(site, "/resource-pools/proxies/reset", HX_Request="true").json()
    assert said["text"] == f"{len(before)} members reset"
    assert not any(one.record.cooldowns or one.record.failures for one in site.do(site.store.resources("proxies")))


def test_members_are_added_as_lines_without_passwords(site: Site) -> None:
    path = "/resource-pools/proxies/members"
    lines = {"text": "10.0.0.7:8080\nhttp://10.0.0.8:8080", "labels": "eu, fast"}
    assert sent(site, path, lines, HX_Request="true").json()["text"] == "2 members added"
    found = {one.name: one.labels for one in site.do(site.store.resources("proxies"))}
    assert found["10.0.0.7:8080"] == ("eu", "fast")
    wrong = sent(site, path, {"text": "10.0.0.9:8080:ana:secret"}, HX_Request="true")
    assert wrong.status_code == 400
    assert "secret" not in wrong.text.replace("secrets", "")
    assert sent(site, path, {"text": " "}, HX_Request="true").status_code == 400


def test_every_act_says_what_was_done_and_a_refused_one_what_to_do(site: Site) -> None:
    """Acts of batches, pools and managers said "Success", and limits that were left empty were "changed"."""
    said = {
        f"/batches/{BATCHES[2]}/move": ({"to": "top"}, "Batch is number 1 in lane night"),
        f"/batches/{BATCHES[1]}/pause": ({}, "Batch is paused"),
        f"/batches/{BATCHES[2]}/requeue": ({}, "0 items set to run again"),
        "/worker-pools/default/pause": ({}, "Pool default paused"),
        "/worker-pools/default/restart": ({}, "Pool default replaces its workers one by one"),
        "/worker-pools/default/scale": ({"size": "1"}, "Pool default gets 1 worker in 1 manager"),
        "/managers/1/drain": ({}, "Manager drains"),
        f"/events/{EVENT}/replay": ({}, "1 task put"),
    }
    for path, (fields, text) in said.items():
        assert sent(site, path, fields, HX_Request="true").json()["text"] == text
    empty = sent(site, "/resource-pools/accounts", {"_method": "PATCH", "limits.per_hour": ""}, HX_Request="true")
    assert (empty.status_code, empty.json()["why"]) == (400, "there is nothing to change")
    missing = sent(site, "/alerts/silences", {"rule": "disk", "for": ""}, HX_Request="true").json()
    assert (missing["text"], missing["fix"]) == ("Missing required field: for", "correct it, and send it again")


def test_a_wrong_field_is_told_once_and_broken_json_with_its_place(site: Site) -> None:
    wrong = sent(site, "/queues/media", {"_method": "PATCH", "rate": "often"}, HX_Request="true").json()
    assert wrong["text"].startswith("rate: ")
    assert (wrong["why"], wrong["fix"]) == ("", "correct it, and send it again")
    broken = sent(site, "/tasks", {"type": "send", "params": '{"a": 1,\n nonsense}'}, HX_Request="true")
    assert broken.status_code == 400
    assert (broken.json()["text"], broken.json()["why"].partition(":")[0]) == ("Params is not JSON", "line 2, column 2")


def test_an_undo_says_what_was_undone_in_words(site: Site) -> None:
    undo = sent(site, "/queues/media/pause", HX_Request="true").json()["undo"].removeprefix("/ui/act")
    assert sent(site, undo, HX_Request="true").json()["text"] == "Undone: the pause of queue media"


def test_a_refused_act_is_no_way_back() -> None:
    with Site(GateRules(local=True)) as site:
        site.do(furnish(site.store, site.server.make_id))
        viewer = site.key("viewer")
        answer = sent(site, "/queues/media/pause", {"_back": "/ui/queues"}, Cookie=f"pitboss_key={viewer}")
        assert answer.status_code == 403
        assert "This key may not do that" in answer.text
