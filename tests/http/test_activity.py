"""What happened, over HTTP: for viewers without the audit log, for admins with it; and changes of waiting tasks."""

from collections.abc import Iterator

import pytest

from pitboss.model.duration import SECOND
from pitboss.model.filter import by
from pitboss.model.happening import Kind, happening
from pitboss.model.ids import make_id
from pitboss.model.queue import HandlerInfo, QueueChange
from pitboss.model.task import NewTask
from tests.http.site import Site


class Watched(Site):
    """A site where something happened, with keys of three roles."""

    def __enter__(self) -> "Watched":
        super().__enter__()
        self.do(_fill(self))
        self.keys = {role: {"X-API-Key": self.key(role)} for role in ("viewer", "admin", "worker")}
        return self


@pytest.fixture(scope="module")
def site() -> Iterator[Watched]:
    with Watched() as site:
        site.http.post("/api/queues/mail/pause", headers=site.keys["admin"])
        yield site


async def _fill(site: Site) -> None:
    now = site.store.clock.now()
    kinds = (Kind.STORE_AWAY, Kind.STORE_BACK, Kind.WORKER_CRASHED)
    moments = (now - 7200 * SECOND, now - 60 * SECOND, now - SECOND)
    rows = [
        happening(make_id(at // 1000, 0, 0), at, kind, "x", "said") for kind, at in zip(kinds, moments, strict=True)
    ]
    await site.store.record_happenings(rows)
    await site.store.change_queue("mail", QueueChange(capacity=5))


def kinds(site: Watched, role: str, **query: str) -> list[str]:
    found = site.http.get("/api/activity", params=query, headers=site.keys[role]).json()["data"]
    assert found["items"] == found["activity"]
    return [one["kind"] for one in found["activity"]]


def test_only_admins_see_acts(site: Watched) -> None:
    assert kinds(site, "viewer") == ["worker_crashed", "store_back", "store_away"]
    assert kinds(site, "admin") == ["act", "worker_crashed", "store_back", "store_away"]
    assert site.http.get("/api/activity", headers=site.keys["worker"]).status_code == 403


def test_it_is_selected_by_age_and_kind(site: Watched) -> None:
    assert kinds(site, "viewer", since="1h") == ["worker_crashed", "store_back"]
    assert kinds(site, "viewer", kind="store_away,store_back") == ["store_back", "store_away"]


def test_it_is_read_in_pages(site: Watched) -> None:
    first = site.http.get("/api/activity", params={"limit": "2"}, headers=site.keys["viewer"]).json()["data"]
    assert kinds(site, "viewer", before=first["next"]) == ["store_away"]


@pytest.mark.parametrize("query", [{"kind": "nothing"}, {"since": "soon"}])
def test_what_is_wrong_is_refused(site: Watched, query: dict[str, str]) -> None:
    assert site.http.get("/api/activity", params=query, headers=site.keys["viewer"]).status_code in (400, 422)


def test_a_waiting_task_is_changed_and_a_finished_one_is_not(site: Watched) -> None:
    headers = site.keys["admin"]
    site.do(site.store.register([HandlerInfo(name="greet")]))
    task = NewTask(id=site.server.make_id(), handler="greet", tags=("eu",))
    site.do(site.store.put([task]))
    place = f"/api/tasks/{task.id}"
    changed = site.http.patch(place, json={"priority": -3, "tag": ["x"], "untag": ["eu"]}, headers=headers)
    assert (changed.status_code, changed.json()["data"]["priority"]) == (200, -3)
    assert [one.tags for one in site.do(site.store.get([task.id])) if one] == [("x",)]
    site.do(site.store.cancel(by(id=task.id)))
    refused = site.http.patch(place, json={"priority": 1}, headers=headers)
    assert (refused.status_code, "is cancelled" in refused.text) == (409, True)
    assert site.http.patch(place, json={}, headers=headers).status_code in (400, 422)
