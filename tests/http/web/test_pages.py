"""Every page on every store, as it is without JavaScript."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from pitboss.http.web.access import PAGES as ROLES
from pitboss.http.web.site import _places
from tests.http.site import Site
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
