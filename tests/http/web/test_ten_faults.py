"""Ten faults: the overview names each, says why, and has the button or the command that helps."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from typing import Any, NamedTuple

import httpx
import pytest

from pitboss.model.alert import AlertState, Phase
from pitboss.model.alert_look import AlertNotes, notes_text
from pitboss.model.alert_rules import rules_of
from pitboss.model.duration import SECOND
from pitboss.model.happening import Kind
from pitboss.model.queue import QueueChange
from pitboss.model.resource import NewResource, PoolRules, ResourceOutcome
from pitboss.model.schedule import ScheduleSpec
from pitboss.model.snapshot import WorkerState
from tests.http.site import Site
from tests.http.test_store_away import Fragile
from tests.http.web.scenes import FORBIDDEN, Pool, Scene, Stream

WORK = Stream("scrape", "fetch_page", 2.0, 1.5, "proxies")
MAIL = Stream("mail", "send_mail", 0.3, 0.5)
SCRAPERS = Pool("scrapers", {"box1": 2, "box2": 2}, 2, ("scrape",), 2 << 30)
DEFAULT = Pool("default", {"box1": 2}, 4, ("mail",))


async def start(*, rules: PoolRules | None = None) -> Scene:
    """A load that is well."""
    scene = Scene((WORK, MAIL), (SCRAPERS, DEFAULT))
    await scene.store.declare_pool("proxies", rules or PoolRules())
    await scene.start()
    await scene.store.add_resources("proxies", [NewResource(name=f"p-{n:02}") for n in range(10)])
    await scene.run(300)
    return scene


async def no_worker() -> Scene:
    scene = await start()
    for _, name in scene.names(SCRAPERS):
        scene.states[name] = WorkerState.RESTARTING
        scene.whys[name] = {"why": "was killed by SIGKILL", "crashes": 4, "next_at": scene.now + 100 * SECOND}
    scene.running = [one for one in scene.running if one.pool != "scrapers"]
    await scene.run(60)
    return scene


async def cooling() -> Scene:
    """A pool of which most is refused for a while."""
    scene = await start(rules=PoolRules(cooldown=1800 * SECOND))
    scene.uses = [ResourceOutcome.RATE_LIMITED] * 9
    await scene.run(400)
    return scene


async def blacklisted() -> Scene:
    scene = await start(rules=PoolRules(max_failures=1, max_ejected=1.0, cooldown=3600 * SECOND))
    # The last one always stays off the blacklist.
    scene.uses = [ResourceOutcome.RESOURCE_ERROR] * 9 + [ResourceOutcome.BLOCKED] * 2
    await scene.run(400)
    return scene


async def forgotten_pause() -> Scene:
    scene = await start()
    pause = QueueChange(paused=True, by="ana", reason="provider maintenance")
    await scene.audited("ana", "queues pause", "mail", reason="provider maintenance").change_queue("mail", pause)
    await scene.run(3000)
    return scene


async def crash_loop() -> Scene:
    scene = await start()
    scene.states["scrapers-1"] = WorkerState.RESTARTING
    scene.whys["scrapers-1"] = {"why": "was killed by SIGSEGV", "crashes": 6, "next_at": scene.now + 500 * SECOND}
    for _ in range(6):
        await scene.run(50)
        await scene.store.crash("scrapers-1", "was killed by SIGSEGV")
    return scene


async def late_schedule() -> Scene:
    scene = await start()
    spec = ScheduleSpec(name="nightly-report", handler="send_mail", every=120 * SECOND, queue="mail")
    await scene.store.put_schedule(spec)
    await scene.run(600)
    return scene


async def growing() -> Scene:
    scene = await start()
    scene.streams["scrape"] = WORK._replace(comes=9.0)
    await scene.run(500)
    return scene


async def dead_letters() -> Scene:
    scene = await start()
    scene.fails = {"scrape": (0.95, FORBIDDEN)}
    await scene.run(700)
    return scene


async def slow_store() -> Scene:
    scene = await start()
    queues = scene.store.queues

    async def slowly() -> Any:
        scene.store.time.advance(3)
        return await queues()

    scene.store.queues = slowly  # type: ignore[method-assign]
    return scene


async def memory() -> Scene:
    scene = await start()
    scene.whys["scrapers-2"] = {"rss": (25 << 30) // 10}
    await scene.run(200)
    # It drains and its task takes long.
    scene.states["scrapers-2"] = WorkerState.DRAINING
    own = [one for one in scene.running if one.worker == "scrapers-2"]
    scene.running = [one for one in scene.running if one not in own]
    scene.running += [one._replace(ends=scene.now + 3600 * SECOND) for one in own]
    await scene.run(60)
    about = "worker scrapers-2 on box1 (pid 4202) uses 125% of its soft memory limit, and is not replaced"
    firing = AlertState(phase=Phase.FIRING, since=scene.now - 60 * SECOND, value=1.25, about=about, fired=1)
    notes = AlertNotes(at=scene.now, rules=rules_of({}), alerts={"memory_usage": firing})
    term = (await scene.store.campaign(scene.sessions["box1"])).term
    await scene.store.note_alerts(notes_text(notes), [], version=0, term=term)
    await scene.note(Kind.ALERT, "worker scrapers-2", f"alert memory_usage is firing: {about}")
    return scene


class Fault(NamedTuple):
    """`says` are words of the verdict. `helps` is the command that stands there, or the act that a button does."""

    seed: Callable[[], Awaitable[Scene]]
    health: str
    says: tuple[str, ...]
    helps: tuple[str, ...]


FAULTS = {
    "no worker": Fault(
        no_worker,
        "is-bad",
        ("Worker pool scrapers has no live worker", "killed by SIGKILL (often the kernel", "Next try"),
        ("/ui/act/worker-pools/scrapers/restart", "pitboss logs scrapers", "pitboss logs manager"),
    ),
    "pool cooling down": Fault(
        cooling,
        "is-warn",
        ("Queue scrape grows by", "9 of 10 proxies are away: 9 cooling", "Until"),
        ("pitboss resources show proxies", "/ui/act/resource-pools/proxies/reset", "/ui/act/queues/scrape/pause"),
    ),
    "all proxies blacklisted": Fault(
        blacklisted,
        "is-bad",
        (
            "tasks of queue scrape cannot start",
            "10 of 10 proxies are away: 1 cooling, 9 blacklisted",
            "when 4 of 10 are back; the last one",
        ),
        ("pitboss resources show proxies", "/ui/act/resource-pools/proxies/reset"),
    ),
    "queue paused and forgotten": Fault(
        forgotten_pause,
        "is-warn",
        ("Queue mail is paused, and", "was paused by ana 50m ago", "provider maintenance", "Until it is resumed"),
        ("/ui/act/queues/mail/resume",),
    ),
    "crash loop": Fault(
        crash_loop,
        "is-warn",
        (
            "Worker scrapers-1 on ",
            "crashes again and again: 6 crashes in 10m",
            "killed by SIGSEGV (a segmentation fault",
            "Next try",
        ),
        ("pitboss logs", "/ui/activity?kind=worker_crashed"),
    ),
    "late schedule": Fault(
        late_schedule,
        "is-warn",
        ("Schedule nightly-report is overdue by", "no manager leads, and only the leading one fires schedules"),
        ("pitboss logs manager", "/ui/act/schedules/nightly-report/run"),
    ),
    "backlog growing": Fault(
        growing,
        "is-warn",
        (
            "Queue scrape grows by",
            "all 8 seats of its workers are busy",
            "5 workers in each of 2 managers would keep up, but its 10 proxies are enough for 3",
            "Scale scrapers to 3 in each manager",
        ),
        ("/ui/act/worker-pools/scrapers/scale",),
    ),
    "flood of dead letters": Fault(
        dead_letters,
        "is-bad",
        ("tasks of the last 1h failed, most of them of queue scrape", "HTTPStatusError"),
        ("/ui/failures", "pitboss dead list", "/ui/act/queues/scrape/pause"),
    ),
    "store slow": Fault(
        slow_store,
        "is-bad",
        (
            "The store is slow: it took 3s for a small read",
            "the memory store answers in 3s",
            "every claim and every settlement waits for it",
        ),
        ("/ui/system", "pitboss doctor"),
    ),
    "memory above its limit": Fault(
        memory,
        "is-warn",
        (
            "uses 125% of its soft memory limit",
            "memory_usage is firing",
            "scrapers-2 is replaced when its task ends: it runs fetch_page",
        ),
        ("/ui/act/worker-pools/scrapers/restart", "/ui/act/alerts/silences", "pitboss ps"),
    ),
}


class _Text(HTMLParser):
    """The text of an element with the id "verdict", and where its links and forms lead."""

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []
        self.leads: list[str] = []
        self.kind = ""
        self._depth = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "section":
            if given.get("id") == "verdict":
                self.kind = given.get("class") or ""
            self._depth = 1 if given.get("id") == "verdict" else 0
        if self._depth:
            self.leads += [value for name in ("href", "action") if (value := given.get(name))]

    def handle_endtag(self, tag: str) -> None:
        if self._depth and tag in ("dt", "dd", "button"):
            self.words.append(" ")
        if tag == "section":
            self._depth = 0

    def handle_data(self, data: str) -> None:
        if self._depth:
            self.words.append(data)

    @property
    def said(self) -> str:
        """Names are links without quotes where there is a page of them."""
        return " ".join("".join(self.words).replace('"', "").split())


def verdict(text: str) -> _Text:
    reader = _Text()
    reader.feed(text)
    return reader


@contextmanager
def shown(seed: Callable[[], Awaitable[Scene]]) -> Iterator[Site]:
    """A site that has the store of a scene."""

    async def build() -> Scene:
        return await seed()

    scene = asyncio.run(build())
    with Site(wrap=lambda _: scene.store) as site:
        site.store = scene.store
        yield site


@pytest.mark.parametrize("fault", FAULTS.values(), ids=list(FAULTS))
def test_a_fault_is_named_with_its_cause_and_what_helps(fault: Fault) -> None:
    with shown(fault.seed) as site:
        page = site.http.get("/ui")
        assert page.status_code == 200, page.text[-500:]
        found = verdict(page.text)
        assert fault.health in found.kind, found.said
        for words in fault.says:
            assert words in found.said, found.said
        for one in fault.helps:
            assert one in found.said or any(lead.startswith(one) for lead in found.leads), (found.said, found.leads)


def test_a_button_of_the_verdict_does_what_it_says() -> None:
    with shown(forgotten_pause) as site:
        headers = {"Origin": site.url, "Sec-Fetch-Site": "same-origin"}
        answer: httpx.Response = site.http.post("/ui/act/queues/mail/resume", data={"_back": "/ui"}, headers=headers)
        assert answer.status_code == 303
        assert not any(one.paused for one in site.do(site.store.queues()))
        assert "is paused" not in verdict(site.http.get("/ui").text).said


def test_a_viewer_gets_the_command_instead_of_the_button() -> None:
    with shown(forgotten_pause) as site:
        site.http.cookies.set("pitboss_key", site.key("viewer"))
        found = verdict(site.http.get("/ui").text)
        assert "pitboss queues resume mail" in found.said
        assert not any("/ui/act/" in lead for lead in found.leads)


def test_a_store_that_is_away_is_the_verdict_of_every_page() -> None:
    fragile: list[Fragile] = []

    def wrap(store: Any) -> Fragile:
        fragile.append(Fragile(store))
        return fragile[0]

    with Site(wrap=wrap) as site:
        fragile[0].away = True
        for path in ("", "/queues", "/tasks", "/system"):
            answer = site.http.get(f"/ui{path}")
            assert answer.status_code == 503
            assert "The store does not answer" in answer.text
            assert "it was taken away" in answer.text
