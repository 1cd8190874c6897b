"""Every route with every role: the table of `access.py` is what the server does, no more and no less."""

import re
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import httpx
import pytest

from pitboss.http.access import CONTRACT, ROLES
from pitboss.model.access import Role, key_text
from pitboss.operate.keys import revoke_key
from tests.http.site import Site

PREFIX = "/api"
# The documents of the API, which are not part of it.
DOCUMENTS = {"/", "/openapi.json", "/docs", "/docs/static"}
NO_ROLE: dict[str, str | None] = {"none": None, "wrong": key_text("ab12", "wrong"), "garbage": "pbk__", "revoked": None}


class Place(NamedTuple):
    method: str
    path: str

    @property
    def entry(self) -> tuple[str, str]:
        return self.method, self.path.removeprefix(PREFIX)

    @property
    def url(self) -> str:
        return re.sub(r"{\w+}", "1", self.path)


def places(routes: Any) -> Iterator[Place]:
    """Every method and path, also those of routers inside the application."""
    for route in routes:
        inner = getattr(route, "original_router", None)
        if inner is not None:
            yield from places(inner.routes)
        elif route.path not in DOCUMENTS:
            yield from (Place(method, route.path.replace(":path}", "}")) for method in route.methods)


class Locked:
    """A site that needs keys, with one key for each role and one that was revoked."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.places = sorted(places(site.framework.routes))
        self.keys = NO_ROLE | {role.value: site.key(role.value) for role in Role}
        self.keys["revoked"] = site.key(*Role, name="revoked")
        site.do(revoke_key(site.store, "revoked"))
        site.do(site.server.keys.read())

    def ask(self, place: Place, key: str | None) -> httpx.Response:
        headers = {} if key is None else {"X-API-Key": key}
        body: dict[str, Any] | None = None if place.method in ("GET", "DELETE") else {}
        return self.site.http.request(place.method, place.url, headers=headers, json=body)


@pytest.fixture(scope="module")
def locked() -> Iterator[Locked]:
    with Site() as site:
        yield Locked(site)


def test_every_route_has_an_entry_and_every_entry_a_route(locked: Locked) -> None:
    prefixed = {place.entry for place in locked.places if place.path.startswith(PREFIX + "/")}
    plain = {place.entry for place in locked.places if not place.path.startswith(PREFIX + "/")}
    assert prefixed == set(ROLES)
    assert plain == set(CONTRACT)


def test_the_document_has_every_route_and_says_which_need_a_key(locked: Locked) -> None:
    document = locked.site.http.get("/openapi.json").json()
    described = {
        (method.upper(), path.removeprefix(PREFIX)): "security" in operation
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
    }
    assert described == {entry: bool(roles) for entry, roles in ROLES.items()}
    assert document["components"]["securitySchemes"].keys() == {"ApiKey", "Bearer"}


def test_a_key_opens_the_routes_of_its_role_and_no_other(locked: Locked) -> None:
    wrong, cells = list[str](), 0
    for place in locked.places:
        allowed = ROLES[place.entry]
        for role in Role:
            code = locked.ask(place, locked.keys[role.value]).status_code
            cells += 1
            fits = code not in (401, 403) if not allowed or role in allowed else code == 403
            if not fits:
                wrong.append(f"{place.method} {place.path} as {role}: {code}")
    assert not wrong, "\n".join(wrong)
    assert cells == len(locked.places) * len(Role) >= 350


def test_without_a_key_that_opens_only_public_routes_answer(locked: Locked) -> None:
    wrong = []
    for place in locked.places:
        public = not ROLES[place.entry]
        for name in NO_ROLE:
            code = locked.ask(place, locked.keys[name]).status_code
            if (code == 401) is public:
                wrong.append(f"{place.method} {place.path} with {name} key: {code}")
    assert not wrong, "\n".join(wrong)


def test_a_forbidden_request_is_refused_before_its_body_is_read(locked: Locked) -> None:
    for place in locked.places:
        if Role.VIEWER in ROLES[place.entry] or not ROLES[place.entry] or place.method == "DELETE":
            continue
        headers = {"X-API-Key": str(locked.keys["viewer"]), "Content-Type": "application/json"}
        answer = locked.site.http.request(place.method, place.url, headers=headers, content=b"{not json")
        assert answer.status_code == 403, place


def test_both_headers_carry_a_key(locked: Locked) -> None:
    get, key = locked.site.http.get, str(locked.keys["viewer"])
    assert get("/api/status", headers={"X-API-Key": key}).status_code == 200
    assert get("/api/status", headers={"Authorization": f"Bearer {key}"}).status_code == 200
    assert get("/api/status", headers={"Authorization": f"bearer  {key}"}).status_code == 200
    assert get("/api/status", headers={"Authorization": key}).status_code == 401
    assert get("/api/status", headers={"Authorization": f"Basic {key}"}).status_code == 401
    assert get(f"/api/status?api_key={key}").status_code == 401
    assert get("/api/status", headers={"Cookie": f"X-API-Key={key}"}).status_code == 401


def test_a_key_with_two_roles_has_the_rights_of_both(locked: Locked) -> None:
    both = locked.site.key("producer", "worker")
    for place in locked.places:
        allowed = ROLES[place.entry]
        if not allowed:
            continue
        code = locked.ask(place, both).status_code
        assert (code == 403) is allowed.isdisjoint({Role.PRODUCER, Role.WORKER}), (place, code)


def test_the_answer_to_a_forbidden_request_says_which_role_it_needs(locked: Locked) -> None:
    answer = locked.site.http.post("/api/queues/q/pause", headers={"X-API-Key": str(locked.keys["viewer"])})
    assert answer.status_code == 403
    assert answer.json()["error"] == "This key may not do that"
    assert answer.json()["details"]["why"] == "it is a key for viewer; this needs operator, admin"


def test_a_revoked_key_is_refused_within_two_seconds() -> None:
    with Site() as site:
        key = site.key("viewer", name="short-lived")
        assert site.http.get("/api/status", headers={"X-API-Key": key}).status_code == 200
        # Revoked by another process: this server has to notice by itself.
        site.do(revoke_key(site.store, "short-lived"))
        began = time.monotonic()
        while site.http.get("/api/status", headers={"X-API-Key": key}).status_code == 200:
            assert time.monotonic() - began < 2
        assert site.http.get("/api/status", headers={"X-API-Key": key}).status_code == 401


def test_a_key_that_is_revoked_over_http_is_refused_at_once() -> None:
    with Site() as site:
        admin, viewer = {"X-API-Key": site.key("admin")}, {"X-API-Key": site.key("viewer", name="gone")}
        assert site.http.delete("/api/keys/gone", headers=admin).status_code == 200
        assert site.http.get("/api/status", headers=viewer).status_code == 401


def test_a_store_whose_keys_are_all_revoked_stays_closed() -> None:
    with Site() as site:
        admin = {"X-API-Key": site.key("admin", name="last")}
        assert site.http.delete("/api/keys/last", headers=admin).status_code == 200
        assert site.http.get("/api/tasks").status_code == 401


def test_creating_the_first_key_closes_the_server() -> None:
    with Site() as site:
        created = site.http.post("/api/keys", json={"name": "first", "roles": ["admin"]})
        assert created.status_code == 201
        assert site.http.get("/api/tasks").status_code == 401
        key = created.json()["data"]["key"]
        assert site.http.get("/api/tasks", headers={"X-API-Key": key}).status_code == 200
        assert key not in site.http.get("/api/keys", headers={"X-API-Key": key}).text
