"""Who may come in at /ui: the name under which the server was asked for, the session, and where a form comes from."""

from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response

from pitboss.config import is_loopback
from pitboss.http.access import Roles
from pitboss.http.answers import ApiError
from pitboss.http.context import Caller, Server
from pitboss.http.gate import EVERYONE, GateRules, host_name, is_proxied
from pitboss.http.rate import RateLimit
from pitboss.model.access import key_parts
from pitboss.model.duration import SECOND
from pitboss.model.limits import Window

COOKIE = "pitboss_key"
_WEEK = 7 * 86_400
_LONGEST_KEY = 300
_ATTEMPTS = Window(10, 60 * SECOND)
_ANY_HOST = "*"
_WILDCARDS = ("0.0.0.0", "::")


class Door:
    """The session is the key itself, in a cookie that scripts cannot read: a revoked key opens nothing from the next
    request on, whichever server it goes to."""

    def __init__(self, server: Server, rules: GateRules) -> None:
        self._server, self._rules = server, rules
        self._attempts = RateLimit(_ATTEMPTS)

    @property
    def keyless(self) -> bool:
        """No key was ever created: this machine may do everything, and others nothing."""
        return self._rules.local and not self._server.keys.any

    def check_host(self, request: Request) -> None:
        """A page of another site could give its own name this server's address, and read it as its own."""
        name = host_name(request.headers.get("host", ""))
        if self._known(name):
            return
        raise ApiError(
            421,
            f'This server is not known as "{name[:80]}"',
            why="the dashboard answers only under names that it was told, so that no other site can stand in for it",
            fix=f'add the name to the configuration: [http] hosts = ["{name[:80]}"]',
        )

    async def caller(self, request: Request) -> Caller | None:
        """Who asks; None without a session."""
        address = request.client.host if request.client else "unknown"
        if self.keyless:
            self._check_local(request)
            return Caller("local", EVERYONE, address)
        text = request.cookies.get(COOKIE)
        key = None if not text or len(text) > _LONGEST_KEY else await self._server.keys.find(text)
        return None if key is None else Caller(key.name, frozenset(key.roles), address)

    async def login(self, request: Request, text: str) -> bool:
        """Whether this key opens. Guessing is slowed down: by address and, for keys that exist, by key, so that no key
        is locked out by guesses at others."""
        key_id = (key_parts(text[:_LONGEST_KEY]) or ("",))[0]
        guessed = f"{self._from(request)} {key_id if self._server.keys.has(key_id) else ''}"
        allowance = self._attempts.take(guessed, self._server.clock.now())
        if not allowance.granted:
            raise ApiError(
                429,
                "Too many attempts to log in",
                why=f"{allowance.limit} a minute may fail from one address",
                fix=f"wait {allowance.reset} s",
            )
        opens = len(text) <= _LONGEST_KEY and await self._server.keys.find(text) is not None
        if opens:
            self._attempts.give_back(guessed)
        return opens

    def _from(self, request: Request) -> str:
        """The address of the browser. Behind a proxy on this machine it is the last one that the proxy names: it adds
        that itself, and everything before may be invented."""
        address = request.client.host if request.client else "unknown"
        named = request.headers.get("x-forwarded-for", "").rpartition(",")[2].strip()
        return named if self._rules.hosts and is_loopback(address) and _is_address(named) else address

    def keep(self, request: Request, answer: Response, text: str, path: str) -> None:
        """Set the cookie; without text, take it away."""
        secure = self._rules.secure or "https" in (request.url.scheme, request.headers.get("x-forwarded-proto", ""))
        options = {"path": path, "secure": secure, "httponly": True, "samesite": "lax"}
        if text:
            answer.set_cookie(COOKIE, text, max_age=_WEEK, **options)  # type: ignore[arg-type]
        else:
            answer.delete_cookie(COOKIE, **options)  # type: ignore[arg-type]

    def check_source(self, request: Request) -> None:
        """A form that changes something must have been on a page of this server."""
        came, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
        if came not in (None, "same-origin") or not self._own(request, origin, came):
            raise ApiError(
                403,
                "This form is not of this dashboard",
                why=f"it was sent by {origin or 'a program or page that does not say which it is'}",
                fix="open the dashboard itself and try again; behind a proxy, let it pass on the Host header",
            )

    def _own(self, request: Request, origin: str | None, came: str | None) -> bool:
        """Whether it is one of this server, with scheme and port: another server may listen on the same host."""
        if origin is None:
            return came is not None
        place = urlsplit(origin)
        if came is not None and self._known(place.hostname or ""):
            # The browser has compared them, also if the proxy has changed the Host header.
            return True
        host, told = request.headers.get("host", ""), request.headers.get("x-forwarded-proto")
        schemes = [told or request.url.scheme]
        if told is None and is_proxied(request.headers.raw):
            # A proxy that ends TLS need not say so, but what came by TLS was not sent by a page without it.
            schemes.append("https")
        mine, theirs = _without_port(host, place.scheme), _without_port(place.netloc, place.scheme)
        return place.scheme in schemes and mine == theirs

    def _known(self, name: str) -> bool:
        listed, own = self._rules.hosts, self._rules.host
        if _ANY_HOST in listed or name in listed or is_loopback(name) or name == own:
            return True
        # An address cannot be given to another server, as a name can.
        return own in _WILDCARDS and _is_address(name)

    def _check_local(self, request: Request) -> None:
        """While no key exists, only this machine may ask, and no page of another site in its browser."""
        if not is_loopback(host_name(request.headers.get("host", ""))) or is_proxied(request.headers.raw):
            raise ApiError(
                403,
                "Only this machine may open the dashboard",
                why="no key exists yet, and this request came through a proxy or under another name",
                fix="create a key: pitboss keys create NAME --role admin",
            )
        came = request.headers.get("sec-fetch-site")
        if came in ("cross-site", "same-site") and request.headers.get("sec-fetch-mode") != "navigate":
            raise ApiError(403, "Requests from other sites are refused", fix="open the dashboard itself")


def check_page(caller: Caller, roles: Roles) -> None:
    """Whether this page is for the caller."""
    if roles and caller.roles.isdisjoint(roles):
        raise ApiError(
            403,
            "This key may not see that page",
            why=f"it is a key for {', '.join(sorted(caller.roles))}; the page is for {', '.join(sorted(roles))}",
            fix="log out and use another key: pitboss keys create NAME --role …",
        )


def _without_port(host: str, scheme: str) -> str:
    """Browsers leave out the port that every address of the scheme has."""
    return host.lower().removesuffix(":443" if scheme == "https" else ":80")


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
