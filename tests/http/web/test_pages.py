"""Every page on every store, as it is without JavaScript."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from starlette.requests import Request

from pitboss.engines.protocol import FullStore
from pitboss.http.context import Caller
from pitboss.http.gate import EVERYONE, GateRules
from pitboss.http.web.access import PAGES as ROLES
from pitboss.http.web.live import TOPICS
from pitboss.http.web.pages.overview import linked
from pitboss.http.web.site import _places
from pitboss.model.batch import NewBatch
from pitboss.model.duration import SECOND
from pitboss.model.filter import Filter
from pitboss.model.outcome import Failed, decide
from pitboss.model.policy import Policy
from pitboss.model.queue import RESERVED, HandlerInfo
from pitboss.model.resource import PoolRules
from pitboss.model.session import ClaimRequest, SessionInfo, Slot
from pitboss.model.settlement import Settlement
from pitboss.model.snapshot import PoolFigures, Snapshot
from pitboss.model.task import NewTask, TaskError
from tests.http.site import Site
from tests.http.web import lives
from tests.http.web.pages import DETAILS, HOSTILE, PAGES, furnish, inline
from tests.servers.schema import EmptiedSchema


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    url = {"memory": "memory://", "sqlite": f"sqlite:///{tmp_path}/pitboss.db"}.get(request.param)
    if url is None:
        schema: EmptiedSchema = request.getfixturevalue("emptied_schema")
        schema.empty()
        url = f"{schema.dsn}{'&' if '?' in schema.dsn else '?'}schema={schema.name}"
    with Site(url=url) as site:
        yield site


def checked(answer: httpx.Response) -> str:
    """The page, if it is one, with everything that every page has."""
    assert answer.status_code == 200, answer.text[-1500:]
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
    assert "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"
    text = answer.text
    assert inline(text) == []
    assert "<script>alert" not in text
    assert "<img src=x" not in text
    assert '<main class="page" id="main"' in text
    return text


def test_every_page_renders_with_nothing_and_with_something_of_everything(site: Site) -> None:
    for path in PAGES:
        checked(site.http.get(f"/ui{path}"))
    site.do(furnish(site.store, site.server.make_id))
    # What was read for the empty pages is kept for a moment.
    site.dashboard._readings.clear()
    texts = {path: checked(site.http.get(f"/ui{path}")) for path in (*PAGES, *DETAILS)}
    assert texts[""].count('class="w w-') == 7
    assert 'aria-label="proxies: 12 of 12 usable"' in texts[""]
    for queue in ("mail", "scrape", "media"):
        assert f'id="queue-{queue}"' in texts["/queues"]
    assert 'id="queue-scrape"' not in texts["/queues?q=ma"]
    assert texts["/tasks?q=state:pending+queue:mail"].count("<tr id=") == 20


def test_a_filter_that_cannot_be_read_is_explained_on_the_page(site: Site) -> None:
    text = checked(site.http.get("/ui/tasks", params={"q": f"nonsense:{HOSTILE}"}))
    assert 'role="alert"' in text


def test_pages_lead_on_by_their_cursor(site: Site) -> None:
    site.do(furnish(site.store, site.server.make_id))
    seen, address = list[str](), "/ui/tasks"
    while address:
        text = checked(site.http.get(address))
        seen += [part.partition('"')[0] for part in text.split('<tr id="task-')[1:]]
        found = text.partition('rel="next" href="')[2].partition('"')[0]
        address = found.replace("&amp;", "&")
    assert len(seen) == len(set(seen)) == site.counts()["tasks"]


def test_errors_are_pages_too() -> None:
    with Site() as site:
        for path in ("/ui/nothing", "/ui/queues/a/b/c"):
            answer = site.http.get(path)
            assert answer.status_code == 404
            assert answer.headers["content-type"].startswith("text/html")
            assert inline(answer.text) == []
        assert HOSTILE not in site.http.get(f"/ui/{HOSTILE}").text


def test_only_pages_that_exist_are_linked() -> None:
    exist = {one.page.path for one in _places()}
    assert exist <= ROLES.keys()
    with Site() as site:
        site.do(furnish(site.store, site.server.make_id))
        for path in (*PAGES, *DETAILS):
            text = site.http.get(f"/ui{path}").text
            links = {part.partition('"')[0].partition("?")[0] for part in text.split('href="/ui')[1:]}
            pages = {link for link in links if not link.startswith("/static/")}
            assert all(site.http.get(f"/ui{link}").status_code == 200 for link in pages), pages


def test_files_are_kept_by_browsers_and_change_their_address_with_their_content() -> None:
    with Site() as site:
        text = site.http.get("/ui").text
        files = {
            part.partition('"')[0] for part in text.replace('src="', 'href="').split('href="')[1:] if "/static/" in part
        }
        assert len([one for one in files if one.startswith("/ui/static/")]) >= 5
        for one in (one for one in files if one.startswith("/ui/static/")):
            answer = site.http.get(one)
            assert answer.status_code == 200
            assert "immutable" in answer.headers["cache-control"]
        assert site.http.get("/ui/static/own-x/../../site.py").status_code == 404


def test_every_page_that_reads_itself_again_does_so_after_the_store_was_away() -> None:
    for place in _places():
        topics = frozenset(place.page.topics)
        assert topics <= TOPICS, place.page.path
        assert not topics or "store" in topics, place.page.path


def test_pages_that_can_be_asked_for_are_those_of_the_table() -> None:
    others = {"/login", "/live", "/palette", "/export", "/command"}
    assert {place.page.path for place in _places()} == ROLES.keys() - others


def test_the_palette_offers_pages_that_the_caller_may_see() -> None:
    with Site(GateRules(local=True)) as site:
        for role, sees in (("viewer", False), ("admin", True)):
            headers = {"Cookie": f"pitboss_key={site.key(role)}"}
            offered = [one["name"] for one in site.http.get("/ui/palette", headers=headers).json()]
            assert ("Keys" in offered, "Alerts" in offered) == (sees, True)


def test_numbers_are_the_same_everywhere_also_beside_the_queues_of_pitboss_itself() -> None:
    with Site() as site:
        make_id = site.server.make_id
        site.do(site.store.register([HandlerInfo(name="send", queue="mail")]))
        queues = ("mail", "mail", f"{RESERVED}alerts")
        site.do(site.store.put([NewTask(id=make_id(), handler="send", queue=queue) for queue in queues]))
        for _ in range(12):
            site.do(site.store.create_batch(NewBatch(id=make_id()), [NewTask(id=make_id(), handler="send", queue="b")]))
        site.do(site.store.put([NewTask(id=make_id(), handler="unknown", queue="mail")]))
        text = checked(site.http.get("/ui"))
        assert re.search(r'href="/ui/queues"[^>]*>.*?<span class="n">2</span>', text)
        assert re.search(r'href="/ui/batches"[^>]*>.*?<span class="n">10\+</span>', text)
        found = re.search(
            r'class="kpi" href="([^"]+)"><span class="kpi-l">Waiting</span><span class="kpi-n">(\d+)<', text
        )
        assert found is not None
        assert f"{found[2]} match" in checked(site.http.get(found[1].replace("&amp;", "&")))
        assert "2 queues" in checked(site.http.get("/ui/queues"))


def test_queues_come_in_pages() -> None:
    with Site() as site:
        make_id = site.server.make_id
        site.do(site.store.put([NewTask(id=make_id(), handler="send", queue=f"q{place}") for place in range(60)]))
        first = checked(site.http.get("/ui/queues"))
        assert "60 queues" in first
        assert first.count('<tr id="queue-') == 50
        assert checked(site.http.get("/ui/queues?page=2")).count('<tr id="queue-') == 10
        assert checked(site.http.get("/ui/queues?q=q5")).count('<tr id="queue-') == 11


def test_only_known_names_in_a_verdict_are_links() -> None:
    snapshot = msgspec.json.encode(Snapshot(pools=(PoolFigures(name="media", concurrency=1, wanted=1),))).decode()
    with Site() as site:
        site.do(site.store.put([NewTask(id=site.server.make_id(), handler="send", queue="mail")]))
        site.do(site.store.declare_pool("proxies", PoolRules()))
        session = site.do(site.store.open_session(SessionInfo(host="box1", pid=1, ttl=3600 * SECOND)))
        site.do(site.store.renew(session.number, snapshot))

        async def read() -> list[tuple[str, str]]:
            scope = {"type": "http", "method": "GET", "path": "/ui", "query_string": b"", "headers": []}
            view = site.dashboard._view(Request(scope), "", Caller("local", EVERYONE, ""))
            said = '"mail" waits for "media" and "proxies", which refuse "KeyError"'
            return list(linked(view, await view.status(), said))

        assert site.do(read()) == [
            ("mail", "/ui/tasks?q=queue%3Amail+state%3Apending"),
            (" waits for ", ""),
            ("media", "/ui/workers?pool=media"),
            (" and ", ""),
            ("proxies", "/ui/resources/proxies"),
            (", which refuse ", ""),
            ('"KeyError"', ""),
        ]


def test_failures_by_another_filter_are_read_as_far_as_a_page_may_and_it_says_how_far(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pitboss.http.web.pages.failures._READ", 500)
    with Site() as site:
        site.do(fail_many(site.store, site.server.make_id, 700))
        text = checked(site.http.get("/ui/failures?q=queue:broken"))
        assert "500+ failed tasks" in text
        assert re.search(r"Only those created since <time [^>]*>[^<]*</time> were counted", text)
        assert "700 failed tasks" in checked(site.http.get("/ui/failures"))


def test_a_piece_of_an_id_is_looked_for_among_the_newest_tasks_only(monkeypatch: pytest.MonkeyPatch) -> None:
    with Site() as site:
        site.do(furnish(site.store, site.server.make_id))
        looked = list[Filter]()
        find = site.store.find

        async def counted(wanted: Filter, **more: Any) -> Any:
            looked.append(wanted)
            page = await find(wanted, **more)
            return page._replace(next=page.next or lives.DONE) if hasattr(page, "_replace") else page

        monkeypatch.setattr(site.store, "find", counted)
        assert site.http.get("/ui/tasks/ffffffff").status_code == 404
        # Those that begin so, and one page of those that end so.
        assert len(looked) == 2


async def fail_many(store: FullStore, make_id: Callable[[], str], number: int) -> None:
    session = (await store.open_session(SessionInfo(host="box0", pid=9, handlers=("send",), ttl=3600 * SECOND))).number
    await store.register([HandlerInfo(name="send", queue="broken")])
    await store.put([NewTask(id=make_id(), handler="send", queue="broken") for _ in range(number)])
    claims = (await store.claim(ClaimRequest(session=session, slots=(Slot(free=number),)))).claims
    error = Failed(TaskError(category="error", type="KeyError", message="x", fingerprint="f1", retryable=False))
    now = store.clock.now()
    settled = [
        Settlement(id=one.id, token=one.token, transition=decide(one, error, Policy(), now, 0.5)) for one in claims
    ]
    await store.settle(settled)
