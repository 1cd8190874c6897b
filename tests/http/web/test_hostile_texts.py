"""Three hundred texts that attack a page, in every field that pages show: no page gets more markup by them."""

import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from html import unescape
from html.parser import HTMLParser
from itertools import cycle, product
from typing import Any

import msgspec
import pytest

from pitboss.engines.protocol import FullStore
from pitboss.http.web.site import _places
from pitboss.model.access import ApiKey, AuditEntry, Role
from pitboss.model.alert import AlertState, Phase
from pitboss.model.alert_look import AlertNotes, ChannelNote, notes_text
from pitboss.model.alert_rules import rules_of
from pitboss.model.batch import NewBatch
from pitboss.model.declared import Declared
from pitboss.model.duration import SECOND
from pitboss.model.event import NewEvent, Subscription
from pitboss.model.figures import RAW, HandlerFigures, Histogram, PoolSample, ResourceSample, Sample, bucket
from pitboss.model.filter import by
from pitboss.model.happening import Happening, Kind
from pitboss.model.operation import NewOperation, Verb
from pitboss.model.outcome import Completed, Failed, decide, progressed
from pitboss.model.partition import PartitionChange, Partitioning
from pitboss.model.policy import Policy
from pitboss.model.queue import HandlerInfo, QueueChange, QueueSettings
from pitboss.model.resource import NewResource, PoolRules, Report, ResourceChange, ResourceOutcome, Want
from pitboss.model.schedule import ScheduleChange, ScheduleSpec
from pitboss.model.session import ClaimRequest, SessionInfo, Slot
from pitboss.model.settlement import Settlement
from pitboss.model.snapshot import CurrentTask, PoolFigures, ServerFigures, Snapshot, WorkerFigures, WorkerState
from pitboss.model.source import SourceFigures, SourceState
from pitboss.model.source_findings import KIND
from pitboss.model.task import NewTask, TaskError, Unique
from pitboss.model.text import one_line
from pitboss.operate.remote_workers import WorkerCard
from pitboss.operate.views import save_view
from tests.http.site import Site
from tests.http.web.pages import PAGES, inline

MARK = "zqzq"
_ENDS = (
    "", '">', "'>", "</title>", "</textarea>", "</script>", "-->", "]]>", "</svg>", "</time>", "`", "\\\"", "&quot;>",
    "<!--", "</form><b ",
)  # fmt: skip
_ATTACKS = (
    f"<script>alert('{MARK}')</script>",
    f"<img src=x onerror=alert('{MARK}')>",
    f"<svg/onload=alert('{MARK}')>",
    f"<a href=javascript:alert('{MARK}')>x</a>",
    f"<iframe srcdoc='<script>{MARK}</script>'></iframe>",
    f"<math><mi xlink:href='data:x,{MARK}'>",
    f"<body onload={MARK}()>",
    f"<style>@import '//evil.example/{MARK}'</style>",
    f"<link rel=stylesheet href=//evil.example/{MARK}>",
    f"<meta http-equiv=refresh content='0;url=//evil.example/{MARK}'>",
    f"<base href=//evil.example/{MARK}/>",
    f"<button formaction=//evil.example/{MARK}>x",
    f"<input autofocus onfocus={MARK}()>",
    f"<details open ontoggle={MARK}()>",
    f' onmouseover={MARK}() style="x:{MARK}" ',
    f"javascript:alert('{MARK}')",
    f"{{{{ '{MARK}' * 7 }}}}{{% raw %}}",
    f"<div hx-get=/ui hx-trigger=load hx-on::load={MARK}>",
    f"<object data=data:text/html,{MARK}></object>",
    f"\u202e<scr\u0131pt>{MARK}</scr\u0131pt>\u2028<\u200bimg src=x>",
)
PAYLOADS = [f"{end}{attack}" for end, attack in product(_ENDS, _ATTACKS)]
_PLAIN = [f"plain text {MARK} {place}" for place in range(len(PAYLOADS))]
_ROWS = 50
# Of each thing that there is only one of on a page, this many are stored, with other texts; and this many pages of each
# kind are read.
_SOME, _READ = 40, 6


class _Markup(HTMLParser):
    """The elements of a page with the names of their attributes, as a browser reads them."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[tuple[str, frozenset[str]]] = set()
        self.scripts = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.add((tag, frozenset(name for name, _ in attrs)))
        self.scripts += tag == "script"


def markup(text: str) -> _Markup:
    reader = _Markup()
    reader.feed(text)
    return reader


async def fill(store: FullStore, make_id: Any, texts: list[str]) -> None:
    """Every text in lists that are long enough for it; and in fields that there are once, one after the other."""
    next_text = cycle(texts).__next__
    await store.register([HandlerInfo(name="send", queue="mail", resources="proxies")])
    await store.register([HandlerInfo(name="plain", queue="scrape")])
    await _tasks(store, make_id, texts)
    await store.change_queue("mail", QueueChange(paused=True, by=next_text(), reason=next_text()))
    await store.declare_pool("proxies", PoolRules())
    fields = [msgspec.json.encode({"url": text, "note": text}).decode() for text in texts[:40]]
    members = [NewResource(name=f"p{place}", fields=one) for place, one in enumerate(fields)]
    await store.add_resources("proxies", members)
    for member in members[:10]:
        await store.change_resources("proxies", [member.name], ResourceChange(enabled=False, reason=next_text()))
    for _ in range(8):
        data = msgspec.json.encode(next_text()).decode()
        batch = NewBatch(id=make_id(), name=next_text()[:200], data=data, by=next_text())
        await store.create_batch(batch, [NewTask(id=make_id(), handler="plain", queue="scrape")])
    for start in range(0, len(texts), _ROWS):
        log = [
            Happening(id=make_id(), at=store.clock.now(), kind=kind, subject=text, text=text, host=text)
            for text, kind in zip(texts[start : start + _ROWS], cycle((Kind.WORKER_CRASHED, Kind.ALERT)), strict=False)
        ]
        await store.record_happenings(log)
    for text in texts:
        details = msgspec.json.encode({text: text, "reason": text}).decode()
        entry = AuditEntry(id=make_id(), who=text, act=text, target=text, details=details, source=text)
        await store.audited(entry).wish("a", '"b"')
    for text in texts[:40]:
        await save_view(store, one_line(text[:60]), "queue:mail", by=text)
    await _alerts(store, texts)
    await _managers(store, texts)
    await _names(store, make_id, texts)
    await _relatives(store, make_id, texts[-_SOME:])
    for place, text in enumerate(texts):
        # The command and the route refuse such a name.
        await store.add_key(
            ApiKey(id=f"k{place}", name=text, digest=f"{place:064}", roles=(Role.VIEWER,), created_by=text)
        )


async def _tasks(store: FullStore, make_id: Any, texts: list[str]) -> None:
    """Tasks that wait, with parameters and tags; and tasks that failed, with errors."""
    session = (await store.open_session(SessionInfo(host="box0", pid=9, handlers=("plain",), ttl=3600 * SECOND))).number
    await store.put([_task(make_id(), "plain", "scrape", text) for text in texts])
    claimed = await store.claim(ClaimRequest(session=session, slots=(Slot(free=len(texts)),)))
    settled = []
    for place, (claim, text) in enumerate(zip(claimed.claims, texts, strict=True)):
        error = TaskError(
            category="error",
            type=text[:60],
            message=text,
            fingerprint=f"f{place}",
            retryable=False,
            traceback=f"Traceback\n  {text}\n{text}",
        )
        transition = decide(claim, Failed(error), Policy(), store.clock.now(), 0.5)
        settled.append(Settlement(id=claim.id, token=claim.token, transition=transition, worker=text))
    await store.settle(settled)
    await store.end_session(session)
    await store.put([_task(make_id(), "send", "mail", text) for text in texts])


def _task(task: str, handler: str, queue: str, text: str, **more: Any) -> NewTask:
    return NewTask(
        id=task, handler=handler, queue=queue, params=_params(text), tags=(text,), unique=Unique(text), **more
    )


async def _names(store: FullStore, make_id: Any, texts: list[str]) -> None:
    """Texts as the names of things, also where commands and routes refuse them: an older release, or another program,
    may have stored them."""
    now = store.clock.now()
    some = texts[:_SOME]
    wants = [Subscription(handler=text, pattern=text, queue="mail", ordered=True) for text in some]
    spec = Partitioning(by="{state}", mode="static", table={0: tuple(some)})
    await store.declare(
        Declared(app="shop", subscriptions=tuple(wants), queues={"targets": QueueSettings(partitions=spec)})
    )
    session = await store.open_session(SessionInfo(host="box3", pid=4, ttl=3600 * SECOND))
    await store.take_slots(session.number, "default", "box3", [0])
    for text in some:
        await store.put_schedule(ScheduleSpec(name=text, handler=text, every=SECOND, params=_params(text)), by=text)
        await store.change_schedule(text, ScheduleChange(paused=True, by=text, reason=text))
        await store.publish([NewEvent(id=make_id(), name=text, data=_params(text), key=text, by=text)])
        await store.begin_operation(
            NewOperation(id=make_id(), verb=Verb.RETRY, wanted=by(tag=text), by=text, reason=text, matched=2000)
        )
        await store.change_partition("targets", text, PartitionChange(owner="default/0", pinned=text))
        card = WorkerCard(name=text, metadata={text: text}, types=(text,))
        worker = await store.open_session(SessionInfo(host=text, kind="remote", ttl=3600 * SECOND))
        await store.renew(worker.number, msgspec.json.encode(card).decode())
    await store.declare_pool("named", PoolRules())
    fields = [msgspec.json.encode({text: text}).decode() for text in some]
    await store.add_resources("named", [NewResource(name=f"n{place}", fields=one) for place, one in enumerate(fields)])
    for text in some:
        await store.acquire("named", Want(), 60 * SECOND, lease=text)
        report = Report(outcome=ResourceOutcome.BLOCKED, error=text, destination=text)
        await store.release(text, report)
    await store.limit_pool("named", {"per_minute": 50}, by=some[0])
    sample = Sample(
        at=bucket(now, RAW) - RAW,
        session=session.number,
        covered=10,
        led=10,
        handlers=[HandlerFigures("mail", text, 2, Histogram(), Histogram()) for text in some],
        pools={text: PoolSample({"idle": 1}, memory=1) for text in some},
        resources={"named": ResourceSample({"ready": 1}, usable=1, refusals=dict.fromkeys(some, 1))},
    )
    await store.add_samples([sample])


async def _relatives(store: FullStore, make_id: Any, texts: list[str]) -> None:
    """Tasks that are done, with results and children, and some that run and say how far they are."""
    session = await store.open_session(SessionInfo(host="box4", pid=9, handlers=("kin",), ttl=3600 * SECOND))
    await store.register([HandlerInfo(name="kin", queue="kin")])
    await store.put([NewTask(id=make_id(), handler="kin", queue="kin", params=_params(text)) for text in texts])
    slots = (Slot(free=len(texts), queues=("kin",)),)
    settled, children = [], []
    claims = (await store.claim(ClaimRequest(session=session.number, slots=slots))).claims
    for place, (claim, text) in enumerate(zip(claims, texts, strict=True)):
        done = decide(claim, Completed(msgspec.json.encode({text: text}).decode()), Policy(), store.clock.now(), 0.5)
        transition = progressed(40, text) if place % 2 else done
        settled.append(Settlement(id=claim.id, token=claim.token, transition=transition, worker=text))
        children.append(_task(make_id(), "kin", "kin", f"child {text}", parent=claim.id, order_key=text))
    await store.settle(settled)
    await store.put(children)


def _params(text: str) -> str:
    return msgspec.json.encode({"to": text, text: 1}).decode()


async def _alerts(store: FullStore, texts: list[str]) -> None:
    rules, lead = rules_of({}), await store.open_session(SessionInfo(host=texts[0], pid=5, ttl=3600 * SECOND))
    now = store.clock.now()
    states = {
        rule.name: AlertState(phase=phase, since=now, value=1.0, about=text)
        for rule, phase, text in zip(rules, cycle((Phase.FIRING, Phase.PENDING)), cycle(texts[5:]), strict=False)
    }
    channels = {text: ChannelNote(type=text, handler=text) for text in texts[:40]}
    changed = [msgspec.structs.replace(rule, only=(texts[3],), channels=(texts[4],), action=texts[6]) for rule in rules]
    notes = AlertNotes(at=now, rules=tuple(changed), alerts=states, channels=channels)
    term = (await store.campaign(lead.number)).term
    await store.note_alerts(notes_text(notes), [], version=0, term=term)
    for place, rule in enumerate(rules[:4]):
        await store.silence_alert(rule.name, 3600 * SECOND, by=texts[place], reason=texts[-place - 1])


async def _managers(store: FullStore, texts: list[str]) -> None:
    """Managers whose host, version and workers attack; and a process that reads sources."""
    states = (WorkerState.PROCESSING, WorkerState.RESTARTING, WorkerState.CRASHED)
    for place, text in enumerate(texts[:3]):
        workers = tuple(
            WorkerFigures(
                name=f"w{at}{one}", state=state, why=one, running=1, tasks=(CurrentTask(id="x", handler=one),)
            )
            for at, (one, state) in enumerate(zip(texts, cycle(states), strict=False))
        )
        pool = PoolFigures(name="default", concurrency=4, wanted=2, why=text, paused=True, paused_by=text)
        shown = Snapshot(
            pools=(pool,), workers=workers, concurrency=4, target=text, version=text, logs=text, app=text, release=text,
            http=ServerFigures(url=text, state=text, why=text),
        )  # fmt: skip
        session = await store.open_session(SessionInfo(host=text, boot_id=f"{place}", pid=place, ttl=3600 * SECOND))
        await store.renew(session.number, msgspec.json.encode(shown).decode())
    figures = tuple(
        SourceFigures(
            name=text, queue=text, handler=text, state=SourceState.AWAY, why=text, out_state=SourceState.REFUSED,
            out_why=text, out_some=True, malformed=1, malformed_why=text, known_failed=1, requeued=1,
        )
        for text in texts
    )  # fmt: skip
    sources = await store.open_session(SessionInfo(host=texts[7], boot_id="s", pid=8, kind=KIND, ttl=3600 * SECOND))
    await store.renew(sources.number, msgspec.json.encode(figures).decode())


def read_all(site: Site, address: str) -> Iterator[str]:
    """A page, and those that its links to older rows lead to."""
    headers = {"Cookie": f"pitboss_key={site.admin}"}  # type: ignore[attr-defined]
    for _ in range(30):
        answer = site.http.get(address, headers=headers)
        assert answer.status_code == 200, (address, answer.text[-500:])
        yield answer.text
        found = re.search(r'rel="next" href="([^"]+)"', answer.text)
        if found is None:
            return
        address = found[1].replace("&amp;", "&")


@pytest.fixture(scope="module", params=[_PLAIN, PAYLOADS], ids=["plain", "hostile"])
def filled(request: pytest.FixtureRequest) -> Iterator[tuple[bool, Site]]:
    with Site() as site:
        site.do(fill(site.store, site.server.make_id, request.param))
        site.admin = site.key("admin")  # type: ignore[attr-defined]
        yield request.param is PAYLOADS, site


def kind_of(address: str) -> tuple[object, ...]:
    """Pages that are alike: the places in the path stand for what is looked at."""
    path, _, query = address.partition("?")
    first, *places = path.removeprefix("/ui").strip("/").split("/")
    return first, len(places), *sorted(part.partition("=")[0] for part in query.split("&"))


def crawled(site: Site, lists: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Addresses with the pages there: these lists, and what they and their pages lead to, some of each kind."""
    waiting = deque(lists)
    seen, kinds = set(waiting), Counter[tuple[object, ...]]()
    while waiting:
        address = waiting.popleft()
        answer = site.http.get(address, headers={"Cookie": f"pitboss_key={site.admin}"})  # type: ignore[attr-defined]
        text = answer.text
        if answer.status_code == 404:
            # A name with a slash leads nowhere: no name that was checked has one.
            assert inline(text) == [], address
            assert MARK in address, address
            continue
        assert answer.status_code == 200, (address, text[-500:])
        yield address, text
        for found in _LINK.findall(text):
            to = unescape(found)
            if to not in seen and kinds[kind_of(to)] < _READ:
                seen.add(to)
                kinds[kind_of(to)] += 1
                waiting.append(to)


# Not the file of tasks, which has their texts as they are.
_LINK = re.compile(r'href="(/ui(?:/(?!static/|export)[^"#]*)?)["#]')
# Characters that turn the direction of what follows, or break a line.
_TURNS = re.compile("[\u200e\u200f\u2028-\u202e\u2066-\u2069]")
# Fields of forms that are not shown.
_SENT_BACK = re.compile('<input type="hidden"[^>]*>')
_known = set[tuple[str, frozenset[str]]]()
_ADDRESSES = [*PAGES, "/tasks?q=state:failed", "/tasks?q=queue:mail+state:pending", "/activity?kind=act"]


def test_there_are_three_hundred() -> None:
    assert len(set(PAYLOADS)) == 300


def test_no_text_becomes_markup(filled: tuple[bool, Site]) -> None:
    hostile, site = filled
    shown = 0
    for address in _ADDRESSES:
        for text in read_all(site, f"/ui{address}"):
            checked(site, hostile, address, text)
            shown += text.count(MARK)
    # They are shown, and not left out.
    assert not hostile or shown > 5 * len(PAYLOADS)


def test_no_text_becomes_markup_on_the_page_of_one_thing(filled: tuple[bool, Site]) -> None:
    hostile, site = filled
    kinds = Counter[object]()
    for address, text in crawled(site, [f"/ui{one}" for one in _ADDRESSES]):
        checked(site, hostile, address, text)
        kinds[kind_of(address)[:2]] += MARK in text
    silent = {place.page.path for place in _places() if not kinds[kind_of(f"/ui{place.page.path}")[:2]]}
    # These show names that the engines check, and numbers.
    assert silent <= {"/partitions", "/resources"}


def checked(site: Site, hostile: bool, address: str, text: str) -> None:
    found = markup(text)
    turned = _TURNS.search(_SENT_BACK.sub("", text))
    assert turned is None, (address, turned[0])
    if not hostile:
        _known.update(found.found)
        return
    assert inline(text) == [], address
    assert found.found <= _known, (address, found.found - _known)
    # A page with charts has two more than others, and one with lanes another.
    charts = 2 * (' data-chart="' in text) + ("/lanes." in text)
    assert found.scripts == markup(site.http.get("/ui/login").text).scripts + 2 + charts, address
