"""What can be done on the pages of queues, batches, schedules and events, and what they say."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from pitboss.http.gate import GateRules
from pitboss.model.batch import BatchStatus
from pitboss.model.filter import by
from tests.http.site import Site
from tests.http.web.batches import BATCHES, EVENT
from tests.http.web.pages import HOSTILE, furnish
from tests.http.web.test_acts import queue, sent

PAGES = ("/queues/media", "/batches", f"/batches/{BATCHES[1]}", "/schedules", "/schedules/often", f"/events/{EVENT}")


@pytest.fixture
def site() -> Iterator[Site]:
    with Site() as site:
        site.do(furnish(site.store, site.server.make_id))
        yield site


def batch(site: Site, number: int) -> Any:
    return site.do(site.store.batches([BATCHES[number]]))[0]


def schedule(site: Site, name: str) -> Any:
    return site.do(site.store.schedules([name]))[0]


def forms(text: str) -> set[str]:
    """Where the forms of a page lead."""
    return {part.partition('"')[0] for part in text.split('action="/ui/act')[1:]}


def test_a_viewer_sees_no_act_on_these_pages_and_an_operator_does() -> None:
    with Site(GateRules(local=True)) as site:
        site.do(furnish(site.store, site.server.make_id))
        for key, shown in ((site.key("viewer"), False), (site.key("operator"), True)):
            site.http.cookies.set("pitboss_key", key)
            for path in PAGES:
                assert bool(forms(site.http.get(f"/ui{path}").text)) is shown, path
            site.http.cookies.clear()


@pytest.mark.parametrize(
    "path", ["/queues/nope", "/batches/nope", "/batches/0198c1a0-0000-7000-8000-00000000ffff", "/schedules/nope"]
)
def test_what_is_not_there_is_a_page_that_helps(site: Site, path: str) -> None:
    answer = site.http.get(f"/ui{path}")
    assert answer.status_code == 404
    assert "pitboss " in answer.text or "did you mean" in answer.text


def test_an_event_that_is_not_there_is_a_page_that_helps(site: Site) -> None:
    for place in ("nope", "0198c1a0-0000-7000-8000-00000000ffff", "abcdef"):
        assert site.http.get(f"/ui/events/{place}").status_code == 404


def test_a_limit_of_a_queue_is_set_taken_away_and_given_back_to_the_code(site: Site) -> None:
    assert sent(site, "/queues/media", [("_method", "PATCH"), ("rate", "_null"), ("rate", "5/s")]).status_code == 303
    assert queue(site, "media").rate[0].count == 5
    sent(site, "/queues/media", [("_method", "PATCH"), ("rate", "_null"), ("rate", "")])
    assert (queue(site, "media").rate, queue(site, "media").limited) == ((), ("capacity", "rate"))
    assert "Back to the declared ones" in site.http.get("/ui/queues/media").text
    sent(site, "/queues/media", {"_method": "PATCH", "reset": "true"})
    assert (queue(site, "media").capacity, queue(site, "media").limited) == (None, ())


def test_a_limit_that_is_sent_with_a_reset_stays(site: Site) -> None:
    site.http.patch("/api/queues/media", json={"reset": True, "capacity": 7})
    assert (queue(site, "media").capacity, queue(site, "media").limited) == (7, ("capacity",))


def test_batches_move_in_their_lane_without_javascript(site: Site) -> None:
    assert f"/batches/{BATCHES[2]}/move" in forms(site.http.get("/ui/batches").text)
    assert (batch(site, 1).position, batch(site, 2).position) == (1, 2)
    answer = sent(site, f"/batches/{BATCHES[2]}/move", {"to": "up", "_back": "/ui/batches", "_done": "Moved up"})
    assert answer.headers["location"] == "/ui/batches"
    assert (batch(site, 1).position, batch(site, 2).position) == (2, 1)
    text = site.http.get("/ui/batches").text
    assert "Moved up" in text
    assert text.index(f'id="batch-{BATCHES[2]}"') < text.index(f'id="batch-{BATCHES[1]}"')


def test_a_batch_is_paused_resumed_started_and_cancelled(site: Site) -> None:
    path = f"/batches/{BATCHES[1]}"
    sent(site, f"{path}/pause", {"reason": "deploy"})
    assert (batch(site, 1).status, batch(site, 1).reason) == (BatchStatus.PAUSED, "deploy")
    page = site.http.get(f"/ui{path}").text
    assert "“deploy”" in page
    assert {f"{path}/resume", f"{path}/start", f"{path}/cancel"} <= forms(page)
    assert f"{path}/pause" not in forms(page.partition('id="h-l"')[0])
    sent(site, f"{path}/start")
    assert batch(site, 1).status is BatchStatus.RUNNING
    asked = sent(site, f"{path}/cancel", {"_confirm": "Cancel it? 4 unfinished items"})
    assert (asked.status_code, batch(site, 1).status) == (200, BatchStatus.RUNNING)
    sent(site, f"{path}/cancel", {"_confirm": "Cancel it?", "_sure": "1"})
    assert batch(site, 1).status is BatchStatus.CANCELLED
    assert forms(site.http.get(f"/ui{path}").text.partition('id="h-l"')[0]) == {path}


def test_a_lane_lets_more_batches_run(site: Site) -> None:
    sent(site, "/lanes/night", {"_method": "PUT", "max_running": "2"})
    assert [batch(site, number).status for number in (0, 1)] == [BatchStatus.RUNNING] * 2


def test_what_cannot_be_undone_is_asked_with_the_count(site: Site) -> None:
    page = site.http.get(f"/ui/batches/{BATCHES[1]}").text
    assert "4 unfinished items" in page
    event = site.http.get(f"/ui/events/{EVENT}").text
    assert "It puts 1 new task." in event


def test_a_schedule_is_paused_resumed_run_and_removed(site: Site) -> None:
    sent(site, "/schedules/often/pause", {"reason": "deploy"})
    assert (schedule(site, "often").paused, schedule(site, "often").paused_reason) == (True, "deploy")
    assert "if it is resumed" in site.http.get("/ui/schedules/often").text
    sent(site, "/schedules/often/resume")
    assert not schedule(site, "often").paused
    # Its task of the last tick is not finished, and overlap is "skip".
    ran = sent(site, "/schedules/often/run", HX_Request="true").json()
    assert "not finished" in ran["text"]
    assert sent(site, "/schedules/nightly/run", HX_Request="true").json()["text"] == "Task put"
    sent(site, "/schedules/often", {"_method": "DELETE", "_confirm": "Sure?", "_sure": "1"})
    assert site.http.get("/ui/schedules/often").status_code == 404


def test_a_schedule_shows_its_last_runs_and_next_ticks(site: Site) -> None:
    text = site.http.get("/ui/schedules/often").text
    task = schedule(site, "often").last_task
    assert f'id="run-{task}"' in text
    assert text.partition("Next ticks")[2].partition("</ol>")[0].count("<li") == 8


def test_an_event_is_sent_again_to_all_or_to_one_handler(site: Site) -> None:
    def tasks() -> int:
        return site.do(site.store.count(by(task="send", queue="scrape"))).number

    before = tasks()
    sent(site, f"/events/{EVENT}/replay", {"_confirm": "Again?", "_sure": "1"})
    sent(site, f"/events/{EVENT}/replay", {"handlers": "send", "_sure": "1"})
    assert tasks() == before + 2
    wrong = sent(site, f"/events/{EVENT}/replay", {"handlers": "nope"}, HX_Request="true")
    assert wrong.status_code == 404


def test_charts_have_gaps_periods_and_the_values_that_a_script_needs(site: Site) -> None:
    text = site.http.get("/ui/queues/media", params={"since": "15m"}).text
    assert text.count("data-chart=") == 4
    assert 'href="/ui/queues/media?since=7d#charts"' in text
    assert 'aria-current="page">15 min' in text
    assert 'aria-label="In and out, tasks per' in text
    # Nothing was measured: a line has no points, and none at zero.
    assert "Wait, seconds: nothing was measured" in text
    assert text.count('<path class="l-in" d=""/>') == 2
    odd = site.http.get("/ui/queues/mail", params={"since": HOSTILE})
    assert odd.status_code == 200
    assert 'aria-current="page">2 h' in odd.text


def test_hostile_numbers_of_rows_are_the_usual_ones(site: Site) -> None:
    for rows in ("-1", "x", "9" * 400, "²"):
        answer: httpx.Response = site.http.get("/ui/batches", params={"rows": rows, "status": "nope"})
        assert answer.status_code == 200
