"""Asks the site about a profile through one proxy.

Every answer that is not about the profile is an error of its own type: "too many requests" never looks like "no story".
"""

import json
import ssl
from typing import Any
from urllib.robotparser import RobotFileParser

import httpx

from pitboss import Lease

USER_AGENT = "StoryChecker/1.0 (+https://example.org/story-checker)"
_OK, _UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND, _PROXY_AUTH, _TOO_MANY = 200, 401, 403, 404, 407, 429
# Loaded once: reading the certificates takes longer than a request.
_TRUST = ssl.create_default_context()
_PROXY_FAULTS = (_PROXY_AUTH, 502, 503, 504)


class CheckError(Exception):
    """A check that failed."""


class TooManyRequests(CheckError):
    """The site asked this address to pause. The proxy's client has read for how long."""


class Banned(CheckError):
    """The site refuses this address or account."""


class SessionExpired(CheckError):
    """The site no longer accepts the cookie."""


class ProxyTrouble(CheckError):
    """The proxy does not reach the site."""


class SiteTrouble(CheckError):
    """The site's answer cannot be used."""


class UnknownProfile(CheckError):
    """The site has no such profile."""


class NotWelcome(CheckError):
    """The site's robots.txt forbids the page."""


class Browser:
    """Asks the site through one proxy. Each request is a use of the proxy, and waits up to `wait` for its limits."""

    def __init__(self, site: str, proxy: Lease, *, timeout: float, wait: float) -> None:
        self.site = site.rstrip("/")
        self._client = proxy.http(wait=wait, headers={"User-Agent": USER_AGENT}, timeout=timeout)

    async def log_in(self, user: str, password: str) -> str:
        """Log in; returns the cookie of the new session."""
        answer = await self._ask("POST", "/login", data={"user": user, "password": password})
        if answer.status_code == _UNAUTHORIZED:
            raise Banned(f"the site does not accept the account {user}")
        _check(answer)
        return answer.headers["set-cookie"].partition(";")[0]

    async def stories(self, username: str, cookie: str) -> int:
        """How many stories the profile has."""
        answer = await self._ask("GET", f"/stories/{username}", headers={"Cookie": cookie})
        if answer.status_code == _UNAUTHORIZED:
            raise SessionExpired("the session is over")
        if answer.status_code == _NOT_FOUND:
            raise UnknownProfile(f"the site has no profile {username}")
        _check(answer)
        return len(_stories_of(answer, username))

    async def _ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        try:
            return await self._client.request(method, self.site + path, **options)
        except httpx.TransportError as error:
            raise ProxyTrouble(f"{type(error).__name__}: {error}") from error


class Manners:
    """The rules of the site's robots.txt, read once, from our own address and under our own name."""

    def __init__(self, site: str, *, timeout: float = 10.0) -> None:
        self._site, self._timeout = site.rstrip("/"), timeout
        self._rules: RobotFileParser | None = None

    async def check(self, path: str) -> None:
        rules = self._rules or await self.read()
        if not rules.can_fetch(USER_AGENT, self._site + path):
            raise NotWelcome(f"the site's robots.txt does not allow {path}")

    async def read(self) -> RobotFileParser:
        headers = {"User-Agent": USER_AGENT}
        async with httpx.AsyncClient(headers=headers, timeout=self._timeout, verify=_TRUST, trust_env=False) as client:
            try:
                answer = await client.get(f"{self._site}/robots.txt")
            except httpx.TransportError as error:
                raise SiteTrouble(f"robots.txt cannot be read: {error}") from error
        rules = RobotFileParser()
        rules.parse(answer.text.splitlines() if answer.status_code == _OK else [])
        self._rules = rules
        return rules


def _check(answer: httpx.Response) -> None:
    status = answer.status_code
    if status == _TOO_MANY:
        raise TooManyRequests("the site asked for a pause")
    if status == _FORBIDDEN:
        raise Banned("the site refuses this address")
    if status in _PROXY_FAULTS:
        raise ProxyTrouble(f"the proxy answered {status}")
    if status != _OK:
        raise SiteTrouble(f"the site answered {status}")


def _stories_of(answer: httpx.Response, username: str) -> list[Any]:
    """The stories in an answer about this profile."""
    try:
        told = answer.json()
        if told["username"] != username:
            raise SiteTrouble(f"asked for {username}, told about {told['username']}")
        return list(told["stories"])
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise SiteTrouble("the answer cannot be read") from error
