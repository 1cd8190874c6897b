"""A browser's navigations as uses of a lease: each is counted when it is sent, and its answer is judged.

Contexts and pages are those of Playwright. It is not imported: they are known by their methods.
"""

from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pitboss.client.resource_client import Grant
from pitboss.engines.host_clock import wall
from pitboss.model.blame import answered, blame
from pitboss.model.duration import Time
from pitboss.model.errors import InvalidInput, PitbossError

if TYPE_CHECKING:
    from pitboss.client.lease import Lease

_ALL = "**/*"
# The answers that send the browser on to another page, and the failures that its user or we have caused.
_REDIRECTS = range(300, 400)
_OUR_DOING = ("ERR_ABORTED", "ERR_BLOCKED_BY_CLIENT", "NS_BINDING_ABORTED")


class Browsing:
    """While it is entered, each navigation of a main frame in a page, or in the pages of a context, is a use.

    Enter it with `async with` for Playwright's async objects, with `with` for its sync ones. What a page loads by
    itself (images, scripts, frames) is no use, nor is a redirect.
    """

    def __init__(self, lease: "Lease", target: Any, wait: Time | None) -> None:
        if not all(hasattr(target, name) for name in ("route", "unroute", "on", "remove_listener")):
            raise InvalidInput(
                f"{type(target).__name__} cannot be browsed with",
                why="it is neither a page nor a context of Playwright",
                fix="pass a page or a context: async with lease.browsing(page): …",
            )
        self._lease, self._target, self._wait = lease, target, wait
        self._grants: dict[Any, Grant] = {}
        self._route: Any = None

    async def __aenter__(self) -> Any:
        self._route = self._counted
        await self._target.route(_ALL, self._route)
        self._listen()
        return self._target

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop_listening()
        with suppress(Exception):  # it may be closed
            await self._target.unroute(_ALL, self._route)

    def __enter__(self) -> Any:
        self._route = self._counted_sync
        self._target.route(_ALL, self._route)
        self._listen()
        return self._target

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop_listening()
        with suppress(Exception):
            self._target.unroute(_ALL, self._route)

    async def _counted(self, route: Any, request: Any) -> None:
        if _is_navigation(request):
            self._lease.answers.asked(_host(request))
            try:
                self._grants[request] = await self._lease.grant_request(self._wait)
            except BaseException as error:
                told = self._refused(error)
                await route.abort("blockedbyclient")
                if told:
                    return
                raise
        await route.fallback()

    def _counted_sync(self, route: Any, request: Any) -> None:
        if _is_navigation(request):
            self._lease.answers.asked(_host(request))
            try:
                self._grants[request] = self._lease.grant_request_sync(self._wait)
            except BaseException as error:
                told = self._refused(error)
                route.abort("blockedbyclient")
                if told:
                    return
                raise
        route.fallback()

    def _refused(self, error: BaseException) -> bool:
        """The browser only says that the navigation was blocked; the lease remembers why, if Pitboss said so."""
        if isinstance(error, PitbossError):
            self._lease.answers.unsent = error
        return isinstance(error, PitbossError)

    def _answered(self, response: Any) -> None:
        request = response.request
        if self._ended(request, self._lease.request_answered) and response.status not in _REDIRECTS:
            host = _host(request)
            self._lease.answers.add(host, answered(response.status, response.headers, wall(), host))

    def _failed(self, request: Any) -> None:
        failure = str(request.failure or "")
        if self._ended(request, self._lease.request_unanswered) and not any(text in failure for text in _OUR_DOING):
            host = _host(request)
            error = _NavigationFailed(f"{failure} at {request.url}")
            self._lease.answers.add(host, blame(error, wall()))

    def _ended(self, request: Any, tell: Callable[[Grant], None]) -> bool:
        """Whether the request belongs to a navigation that was counted. Tells the lease how it ended."""
        first = request
        while first.redirected_from is not None:
            first = first.redirected_from
        grant = self._grants.get(first)
        if grant is not None:
            tell(grant)
        return grant is not None

    def _listen(self) -> None:
        self._target.on("response", self._answered)
        self._target.on("requestfailed", self._failed)

    def _stop_listening(self) -> None:
        with suppress(Exception):
            self._target.remove_listener("response", self._answered)
            self._target.remove_listener("requestfailed", self._failed)


class _NavigationFailed(Exception):
    """A navigation that got no answer, in the browser's words."""


def _is_navigation(request: Any) -> bool:
    if not request.is_navigation_request() or not request.url.startswith(("http://", "https://")):
        return False
    try:
        return request.frame.parent_frame is None
    except Exception:
        # A window that opens has no frame yet, and is a main frame.
        return True


def _host(request: Any) -> str:
    return urlsplit(request.url).hostname or ""
