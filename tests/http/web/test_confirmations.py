"""What cannot be undone, or touches many, asks first, and the question has a name or a number."""

import re
from html.parser import HTMLParser
from typing import Any

import pytest
from playwright.sync_api import Request, expect

from tests.http.site import Site
from tests.http.web import lives
from tests.http.web.pages import DETAILS, PAGES, furnish
from tests.http.web.test_browser import Visitor, chromium, visitor

__all__ = ["chromium", "visitor"]
pytestmark = pytest.mark.timeout(180)

# Of the route below /ui/act. A silenced alert can be silenced again.
_GRAVE = re.compile(
    r"DELETE /(?!alerts/silences/)|POST /tasks/(retry|cancel|delete|change)$|POST /(?!tasks/).*"
    r"/(cancel|delete|restart|stop|drain|run|reset|requeue|start|replay)$|POST /tasks/[^/]+/cancel$"
)


class _Acts(HTMLParser):
    """The acts of a page: method and path, and the question. Those of selected tasks are in the browser's test."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, str]] = []
        self._form: dict[str, str] | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "form":
            self._form = given if "data-act" in given and given.get("id") != "picked" else None
        elif self._form is not None and "name" in given:
            self._form[given["name"]] = given.get("value", "")

    def handle_endtag(self, tag: str) -> None:
        if tag == "form" and self._form is not None:
            form, self._form = self._form, None
            self.found.append((f"{form.get('_method', 'POST')} {form.get('action', '')}", form.get("_confirm", "")))


def test_every_grave_act_of_every_page_asks_with_a_name_or_a_number() -> None:
    asked = set[str]()
    with Site() as site:
        site.do(furnish(site.store, site.server.make_id))
        for path in (*PAGES, *DETAILS, "/tasks?q=state:pending&all=1"):
            page = _Acts()
            page.feed(site.http.get(f"/ui{path}").text)
            for act, question in page.found:
                method, _, route = act.replace("/ui/act", "").partition(" ")
                if _GRAVE.match(f"{method} {route}"):
                    names = [part for part in route.split("/") if part]
                    assert "?" in question, (path, act)
                    assert re.search(r"\d", question) or any(name in question for name in names[1:]), (path, act)
                    asked.add(f"{method} {names[0]} {names[-1] if method == 'POST' else ''}".strip())
    wanted = {"POST tasks retry", "POST tasks cancel", "POST tasks delete", "POST schedules run", "DELETE schedules"}
    wanted |= {"POST resource-pools reset", "POST batches cancel", "POST managers stop", "DELETE tasks"}
    assert wanted <= asked


def test_a_grave_act_is_not_done_when_the_answer_is_no(visitor: Visitor) -> None:
    site = visitor.site
    boss = site.key("admin", name="boss")
    site.key("viewer", name="old-laptop")
    visitor.page.context.add_cookies([{"name": "pitboss_key", "value": boss, "url": f"{site.url}/ui"}])
    page, sent = visitor.page, list[str]()

    def noted(request: Request) -> None:
        if request.method != "GET":
            sent.append(request.url)

    page.on("request", noted)

    def asks(question: str) -> None:
        expect(page.locator("#confirm-what")).to_contain_text(question)
        # Enter means no.
        page.keyboard.press("Enter")
        expect(page.locator("#confirm")).to_be_hidden()

    grave: list[tuple[str, Any, str]] = [
        ("/tasks?q=state:failed&all=1", "Retry 2…", "Retry 2 tasks?"),
        ("/tasks?q=state:failed&all=1", "Delete 2…", "Delete 2 tasks? This cannot be undone."),
        ("/tasks?q=state:pending queue:media&all=1", "Cancel 20…", "Cancel 20 tasks?"),
        (f"/tasks/{lives.FAILED}", "Delete…", f"Delete task {lives.FAILED[-12:]} (fetch)"),
        ("/schedules/nightly", "Run now…", "Put a task of schedule nightly now"),
        ("/resources/accounts/a-1", "Clear failures…", "Clear failures, cooldown and blacklist of a-1?"),
        ("/keys", "Revoke…", "Revoke key"),
    ]
    for path, name, question in grave:
        visitor.open(path)
        page.get_by_role("button", name=name).locator("visible=true").last.click()
        asks(question)
    visitor.open("/tasks?q=state:failed")
    page.locator("[name=_pick]").nth(0).check()
    page.locator("[name=_pick]").nth(1).check()
    page.keyboard.press("Shift+R")
    asks("Retry the selected tasks? (2 selected)")
    assert sent == []
