"""Alerts over HTTP."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pitboss.model.alert import AlertState, Phase
from pitboss.model.alert_look import AlertNotes, notes_text
from pitboss.model.alert_rules import rules_of
from pitboss.model.session import SessionInfo
from tests.http.site import Site

FIRING = AlertState(phase=Phase.FIRING, since=1, value=0.5, about="half of it fails", fired=2)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Site(url=f"sqlite:///{tmp_path}/store.db") as running:
        yield running


def look(site: Site) -> None:
    session = site.do(site.store.open_session(SessionInfo(host="box1")))
    term = site.do(site.store.campaign(session.number)).term
    notes = AlertNotes(at=site.store.clock.now(), rules=rules_of({}), alerts={"dead_letter_rate": FIRING})
    site.do(site.store.note_alerts(notes_text(notes), [], version=0, term=term))


def test_rules_are_listed_with_what_fires_first(site: Site) -> None:
    assert site.http.get("/api/alerts").json()["data"]["alerts"] == []
    look(site)
    found = site.http.get("/api/alerts").json()["data"]
    first = found["alerts"][0]
    assert (first["name"], first["state"], first["fired"]) == ("dead_letter_rate", "firing", 2)
    assert found["count"] == len(rules_of({}))


def test_a_rule_is_silenced_and_audited(site: Site) -> None:
    look(site)
    made = site.http.post("/api/alerts/silences", json={"rule": "disk", "for": 60, "reason": "known"})
    assert made.status_code == 201
    (silenced,) = [one for one in site.http.get("/api/alerts").json()["data"]["alerts"] if one["silence"]]
    assert (silenced["name"], silenced["silence"]["reason"]) == ("disk", "known")
    assert site.http.delete("/api/alerts/silences/disk").status_code == 200
    again = site.http.delete("/api/alerts/silences/disk")
    assert (again.status_code, "is not silenced" in again.json()["error"]) == (404, True)
    acts = [one["act"] for one in site.http.get("/api/audit").json()["data"]["entries"]]
    assert acts == ["alerts unsilence", "alerts silence"]


@pytest.mark.parametrize(
    ("body", "code"),
    [({"rule": "weather", "for": 60}, 404), ({"rule": "disk", "for": 0}, 400), ({"rule": "disk"}, 400)],
)
def test_a_silence_that_cannot_be(site: Site, body: dict[str, object], code: int) -> None:
    look(site)
    assert site.http.post("/api/alerts/silences", json=body).status_code == code
    assert site.http.get("/api/audit").json()["data"]["entries"] == []
