"""The stand-in directory site on loopback. It throttles, bans, shows captchas, and logs every request."""

import json
import math
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple
from urllib.parse import parse_qs, urlencode, urlsplit

from scrape_yp.yp_filter import Target
from scraper_demo.listings import PER_PAGE, Entry

# Without the icon, a browser would ask for one.
_HEAD = '<!doctype html><title>Directory</title><link rel="icon" href="data:,">'
_PAGE = """{head}<main></main>
<script>
for (const one of {listings}) {{
  const shown = document.createElement("article");
  shown.className = "result";
  shown.dataset.listing = JSON.stringify(one);
  shown.textContent = one.name;
  document.querySelector("main").append(shown);
}}
</script>
{next}<a href="/private/leads">for members</a>"""
_NEXT = '<a class="next" href="{url}">Next</a>'
_CAPTCHA = f'{_HEAD}<form id="captcha">Are you a robot?</form>'


@dataclass(frozen=True)
class Rules:
    """At most `limit` requests of an address in any `window`; `strict` addresses have a lower limit. Every
    `captcha_every`th page is a captcha, every `slow_every`th comes late. robots.txt forbids the target `forbidden`."""

    limit: int = 100
    window: float = 10.0
    strict: Mapping[str, int] = field(default_factory=dict)
    captcha_every: int = 40
    slow_every: int = 25
    slow: float = 0.5
    forbidden: Target | None = None


class Arrival(NamedTuple):
    """One request. `kind` is what was shown: page, captcha, robots or refused. `at` is by a clock that is not set."""

    at: float
    address: str
    agent: str
    url: str
    status: int
    kind: str
    retry_after: int = 0


class Answer(NamedTuple):
    """An answer. `late` is how long it takes."""

    status: HTTPStatus
    kind: str
    body: str = ""
    retry_after: int = 0
    late: float = 0.0


class Site:
    """Serves the listings by target."""

    def __init__(self) -> None:
        self.listings: Mapping[str, Sequence[Entry]] = {}
        self.rules = Rules()
        self.arrivals: list[Arrival] = []
        self.banned: dict[str, float] = {}
        self.url = ""
        self._lock = threading.Lock()
        self._counted: dict[str, list[float]] = defaultdict(list)
        self._pages = 0
        self._halted: frozenset[str] = frozenset()
        self._goes_on = threading.Event()
        self._goes_on.set()
        self.waiting = threading.Event()

    def ban(self, address: str) -> None:
        """From now on, this address gets 403."""
        self.banned[address] = time.monotonic()

    @contextmanager
    def halting(self, states: Sequence[str]) -> Iterator[None]:
        """Pages of these states are answered after the end of the block. `waiting` is set when one was asked for."""
        self.waiting.clear()
        self._goes_on.clear()
        self._halted = frozenset(states)
        try:
            yield
        finally:
            self._halted = frozenset()
            self._goes_on.set()

    def answer(self, url: str, address: str, agent: str) -> Answer:
        if _asked(url).get("place", "").rpartition(", ")[2] in self._halted:
            self.waiting.set()
            self._goes_on.wait()
        with self._lock:
            at = time.monotonic()
            made = self._answer(url, address, at)
            self.arrivals.append(Arrival(at, address, agent, url, made.status, made.kind, made.retry_after))
        return made

    def _answer(self, url: str, address: str, at: float) -> Answer:
        if address in self.banned:
            return Answer(HTTPStatus.FORBIDDEN, "refused", f"{_HEAD}This address is banned.")
        if wait := self._wait(address, at):
            return Answer(HTTPStatus.TOO_MANY_REQUESTS, "refused", f"{_HEAD}Too many requests.", wait)
        self._counted[address].append(at)
        parts = urlsplit(url)
        if parts.path == "/robots.txt":
            return Answer(HTTPStatus.OK, "robots", self._robots())
        if parts.path != "/search":
            return Answer(HTTPStatus.NOT_FOUND, "refused", f"{_HEAD}There is no such page.")
        return self._search(_asked(url))

    def _wait(self, address: str, at: float) -> int:
        """Whole seconds until this address may ask again; 0: now."""
        window = self.rules.window
        counted = self._counted[address] = [one for one in self._counted[address] if one > at - window]
        limit = self.rules.strict.get(address, self.rules.limit)
        return math.ceil(counted[-limit] + window - at) if len(counted) >= limit else 0

    def _robots(self) -> str:
        rules = "User-agent: *\nDisallow: /private/\n"
        if self.rules.forbidden is None:
            return rules
        state, city, category = self.rules.forbidden
        return f"{rules}Disallow: /search?{urlencode({'category': category, 'place': f'{city}, {state}'})}\n"

    def _search(self, asked: Mapping[str, str]) -> Answer:
        self._pages += 1
        if self._pages % self.rules.captcha_every == 0:
            return Answer(HTTPStatus.OK, "captcha", _CAPTCHA)
        late = self.rules.slow if self._pages % self.rules.slow_every == 0 else 0.0
        city, _, state = asked["place"].rpartition(", ")
        entries = self.listings.get(Target(state, city, asked["category"]).key, [])
        page = int(asked.get("page", "1"))
        shown = [entry.shown for entry in entries[PER_PAGE * (page - 1) : PER_PAGE * page]]
        more = len(entries) > PER_PAGE * page
        link = _NEXT.format(url=f"/search?{urlencode({**asked, 'page': page + 1})}") if more else ""
        return Answer(HTTPStatus.OK, "page", _PAGE.format(head=_HEAD, listings=json.dumps(shown), next=link), late=late)


def _asked(url: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}


def most_in_window(arrivals: Sequence[Arrival], window: float) -> Counter[str]:
    """The largest number of requests of each address in any window, wherever it begins."""
    seen: dict[str, list[float]] = defaultdict(list)
    most: Counter[str] = Counter()
    for one in sorted(arrivals):
        times = seen[one.address] = [at for at in seen[one.address] if at > one.at - window] + [one.at]
        most[one.address] = max(most[one.address], len(times))
    return most


@contextmanager
def serving(site: Site) -> Iterator[Site]:
    """Serve on a free port of loopback until the end of the block."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            made = site.answer(self.path, self.client_address[0], self.headers.get("User-Agent", ""))
            time.sleep(made.late)
            body = made.body.encode()
            self.send_response(made.status)
            kind = "text/html; charset=utf-8" if made.body.startswith("<!") else "text/plain"
            headers = {"Content-Type": kind, "Content-Length": str(len(body))}
            for name, value in headers.items():
                self.send_header(name, value)
            if made.retry_after:
                self.send_header("Retry-After", str(made.retry_after))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Print nothing: `Site.arrivals` is the log."""

    with listening(Handler) as port:
        site.url = f"http://127.0.0.1:{port}"
        yield site


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Print nothing: a client was killed while it waited for an answer."""


@contextmanager
def listening(handler: type[BaseHTTPRequestHandler]) -> Iterator[int]:
    """A server on a free port of loopback, in threads of its own, until the end of the block."""
    server = _Server(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
