"""What a viewer may not do, and what forms of other sites may not: for every route that the application serves."""

from collections.abc import Iterator
from typing import Any

import pytest

from pitboss.http.access import ROLES
from pitboss.http.gate import GateRules
from pitboss.http.web.access import PAGES as PAGE_ROLES
from pitboss.model.access import Role
from tests.http.site import Site
from tests.http.test_roles import PREFIX, Place, places
from tests.http.web.pages import PAGES, furnish

FORM = "application/x-www-form-urlencoded"
ELSEWHERE = [
    {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"},
    {"Origin": "https://evil.example"},
    {"Origin": "null", "Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Referer": "https://evil.example/ui"},
    {},
]


class Guarded:
    """A site that needs keys, and everything that changes something in it."""

    def __init__(self, site: Site) -> None:
        self.site = site
        site.do(furnish(site.store, site.server.make_id))
        self.keys = {role.value: site.key(role.value) for role in Role}
        self.changing = [one for one in sorted(places(site.framework.routes)) if one.method != "GET"]
        self.acts = [one for one in self.changing if one.path.startswith(f"{PREFIX}/")]

    def submit(self, place: Place, role: str, headers: dict[str, str]) -> int:
        """A form of a page, as the browser of this role sends it from where the headers say."""
        sent = {"Content-Type": FORM, "HX-Request": "true", "Cookie": f"pitboss_key={self.keys[role]}", **headers}
        path = place.url.removeprefix(PREFIX)
        fields = f"_method={place.method}"
        return self.site.http.post(f"/ui/act{path}", content=fields, headers=sent).status_code

    def own(self) -> dict[str, str]:
        return {"Origin": self.site.url, "Sec-Fetch-Site": "same-origin"}

    def changed(self) -> Any:
        return self.site.do(self.site.store.audit_log(limit=1000)), self.site.counts()


@pytest.fixture(scope="module")
def guarded() -> Iterator[Guarded]:
    with Site(GateRules(local=True)) as site:
        yield Guarded(site)


def test_every_route_that_changes_something_is_refused_to_a_viewer(guarded: Guarded) -> None:
    before = guarded.changed()
    wrong = []
    for place in guarded.changing:
        assert Role.VIEWER not in ROLES[place.entry], place
        headers = {"X-API-Key": guarded.keys["viewer"]}
        code = guarded.site.http.request(place.method, place.url, json={}, headers=headers).status_code
        if code != 403:
            wrong.append((place, code))
    assert wrong == []
    assert guarded.changed() == before


def test_every_form_is_refused_to_a_viewer(guarded: Guarded) -> None:
    before = guarded.changed()
    codes = {place: guarded.submit(place, "viewer", guarded.own()) for place in guarded.acts}
    assert {place.entry for place in codes} == {entry for entry in ROLES if entry[0] != "GET"}
    assert {place: code for place, code in codes.items() if code != 403} == {}
    assert guarded.changed() == before


@pytest.mark.parametrize("headers", ELSEWHERE, ids=str)
def test_every_form_of_another_site_is_refused(guarded: Guarded, headers: dict[str, str]) -> None:
    before = guarded.changed()
    codes = {place: guarded.submit(place, "admin", headers) for place in guarded.acts}
    assert {place: code for place, code in codes.items() if code != 403} == {}
    for path in ("login", "logout", "theme"):
        sent = {"Content-Type": FORM, "Cookie": f"pitboss_key={guarded.keys['admin']}", **headers}
        answer = guarded.site.http.post(f"/ui/{path}", content="theme=dark", headers=sent)
        assert answer.status_code == 403
        assert "set-cookie" not in answer.headers
    assert guarded.changed() == before


def test_forms_reach_their_routes(guarded: Guarded) -> None:
    """The tests above would also pass if every form were refused."""
    place = Place("POST", f"{PREFIX}/queues/{{name}}/pause")
    assert guarded.submit(place, "operator", guarded.own()) == 404


@pytest.mark.parametrize("role", [role.value for role in Role])
def test_pages_open_for_the_roles_of_the_table_only(guarded: Guarded, role: str) -> None:
    headers = {"Cookie": f"pitboss_key={guarded.keys[role]}"}
    for address in PAGES:
        allowed = PAGE_ROLES.get(address.partition("?")[0])
        if allowed is not None:
            code = guarded.site.http.get(f"/ui{address}", headers=headers).status_code
            assert code == (200 if Role(role) in allowed else 403), address


def test_a_viewer_sees_no_form_of_an_act(guarded: Guarded) -> None:
    headers = {"Cookie": f"pitboss_key={guarded.keys['viewer']}"}
    for address in PAGES:
        answer = guarded.site.http.get(f"/ui{address}", headers=headers)
        assert answer.status_code == 403 or "/ui/act/" not in answer.text, address
