"""Counts requests and violations of each address in the site's own log."""

from collections.abc import Iterable
from http import HTTPStatus
from typing import NamedTuple

from story_checker.stand_in.site import Arrival


class Figures(NamedTuple):
    """The figures of one address. `most` is the largest number of requests in any window, wherever it begins."""

    requests: int = 0
    refused: int = 0
    most: int = 0
    over_limit: int = 0
    too_early: int = 0

    @property
    def violations(self) -> int:
        """Requests beyond the limit, and requests before the end of a Retry-After."""
        return self.over_limit + self.too_early


def audit(arrivals: Iterable[Arrival], *, limit: int, window: float) -> dict[str, Figures]:
    """The figures of every address."""
    by_address: dict[str, list[Arrival]] = {}
    for arrival in sorted(arrivals):
        if arrival.counts:
            by_address.setdefault(arrival.address, []).append(arrival)
    return {address: _figures(seen, limit, window) for address, seen in by_address.items()}


def _figures(seen: list[Arrival], limit: int, window: float) -> Figures:
    first = most = over_limit = too_early = 0
    not_before = 0.0
    for number, arrival in enumerate(seen):
        while seen[first].at <= arrival.at - window:
            first += 1
        within = number - first + 1
        most = max(most, within)
        over_limit += within > limit
        too_early += arrival.at < not_before
        not_before = max(not_before, arrival.at + arrival.retry_after)
    refused = sum(arrival.status == HTTPStatus.TOO_MANY_REQUESTS for arrival in seen)
    return Figures(len(seen), refused, most, over_limit, too_early)
