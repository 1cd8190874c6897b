"""The site: profiles with or without stories, logins, limits per address, bans, and a log of all requests."""

import json
import math
import secrets
import time
from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from email.utils import formatdate, parsedate_to_datetime
from typing import NamedTuple
from urllib.parse import parse_qs

from story_checker.stand_in.http1 import Request, Response, Server

ROBOTS = """User-agent: *
Allow: /stories/
Allow: /login
Disallow: /
"""


class Arrival(NamedTuple):
    """One request as the site saw it; `retry_after` is the pause in the answer, 0 if there was none."""

    at: float
    address: str
    path: str
    agent: str
    status: int
    retry_after: float = 0

    @property
    def counts(self) -> bool:
        """Whether the request counts against the address's limit: all but robots.txt do."""
        return self.path != "/robots.txt"


@dataclass(frozen=True)
class HouseRules:
    """The site's limits. `strict` has addresses with a lower limit; a session ends after `session_life`.

    `dates`: it says the end of a pause as a date, not in seconds.
    """

    limit: int = 200
    window: float = 3600.0
    session_life: float = 600.0
    strict: dict[str, int] = field(default_factory=dict)
    dates: bool = False


class _Session(NamedTuple):
    user: str
    address: str
    ends: float


class Site:
    """A server on loopback. A cookie is valid only for the address that logged in."""

    def __init__(self, rules: HouseRules) -> None:
        self.rules = rules
        self.server = Server(self._handle)
        self.arrivals: list[Arrival] = []
        self.accounts: dict[str, str] = {}
        self.profiles: dict[str, int] = {}
        self.banned: set[str] = set()
        self.cut: set[str] = set()
        self._sessions: dict[str, _Session] = {}
        self._counted: dict[str, list[float]] = defaultdict(list)

    @property
    def url(self) -> str:
        return self.server.url

    def open_session(self, user: str, address: str, *, life: float | None = None) -> str:
        """The cookie that a login from that address would give."""
        token = secrets.token_hex(16)
        self._sessions[token] = _Session(user, address, time.time() + (life or self.rules.session_life))
        return f"session_id={token}"

    def end_sessions(self, address: str | None = None) -> None:
        """End all sessions, or those of one address."""
        for token, session in [*self._sessions.items()]:
            if address in (None, session.address):
                del self._sessions[token]

    async def _handle(self, request: Request) -> Response | None:
        at = time.time()
        path = request.target.partition("?")[0]
        answer = self._answer(request, path, at)
        self._log(request, path, at, answer)
        return answer

    def _answer(self, request: Request, path: str, at: float) -> Response | None:
        if path == "/robots.txt":
            return Response(200, ROBOTS.encode(), (("Content-Type", "text/plain"),))
        address = request.peer
        if address in self.cut:
            return None
        if address in self.banned:
            return _json(403, {"error": "this address is banned"})
        wait = self._wait(address, at)
        if wait:
            return _json(429, {"error": "too many requests"}, ("Retry-After", self._told(wait, at)))
        self._counted[address].append(at)
        match request.method, path.split("/"):
            case "POST", ["", "login"]:
                return self._login(request)
            case "GET", ["", "stories", name]:
                return self._stories(request, name, at)
        return _json(404, {"error": "there is no such page"})

    def _wait(self, address: str, at: float) -> int:
        """Whole seconds until the limit allows another request of this address; 0 if it does now."""
        counted = self._counted[address]
        limit = self.rules.strict.get(address, self.rules.limit)
        del counted[: bisect_right(counted, at - self.rules.window)]
        return math.ceil(counted[-limit] + self.rules.window - at) if len(counted) >= limit else 0

    def _told(self, wait: int, at: float) -> str:
        return formatdate(math.ceil(at) + wait, usegmt=True) if self.rules.dates else str(wait)

    def _login(self, request: Request) -> Response:
        form = parse_qs(request.body.decode())
        user, password = (form.get(name, [""])[0] for name in ("user", "password"))
        if not user or self.accounts.get(user) != password:
            return _json(401, {"error": "wrong user or password"})
        cookie = self.open_session(user, request.peer)
        return _json(200, {"user": user}, ("Set-Cookie", f"{cookie}; Max-Age={int(self.rules.session_life)}; HttpOnly"))

    def _stories(self, request: Request, name: str, at: float) -> Response:
        session = self._sessions.get(request.headers.get("cookie", "").removeprefix("session_id="))
        if session is None or session.ends <= at or session.address != request.peer:
            return _json(401, {"error": "log in first"})
        stories = self.profiles.get(name)
        if stories is None:
            return _json(404, {"error": "there is no such profile"})
        return _json(200, {"username": name, "stories": [f"{name}-{number}" for number in range(stories)]})

    def _log(self, request: Request, path: str, at: float, answer: Response | None) -> None:
        told = _seconds(dict(answer.headers).get("Retry-After", "0"), at) if answer else 0
        status = answer.status if answer else 0
        agent = request.headers.get("user-agent", "")
        self.arrivals.append(Arrival(at, request.peer, path, agent, status, told))


def _seconds(told: str, at: float) -> float:
    return int(told) if told.isdecimal() else parsedate_to_datetime(told).timestamp() - at


def _json(status: int, value: object, *headers: tuple[str, str]) -> Response:
    return Response(status, json.dumps(value).encode(), (("Content-Type", "application/json"), *headers))
