"""What the far side's own log says about each client."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from demo.video_api import Arrival


class Figures(NamedTuple):
    """The figures of one client. `most` is the largest number of requests in any second, wherever it begins."""

    requests: int
    connections: int
    most: int
    refused: int
    without_quota: int
    too_early: int
    after_quota: int
    asked_twice: int


def audit(arrivals: Iterable[Arrival], *, quota_pause: float) -> dict[str, Figures]:
    """The figures of every client, by its User-Agent."""
    clients: dict[str, list[Arrival]] = defaultdict(list)
    for arrival in sorted(arrivals):
        clients[arrival.client].append(arrival)
    return {client: _figures(seen, quota_pause) for client, seen in clients.items()}


def _figures(seen: Sequence[Arrival], quota_pause: float) -> Figures:
    return Figures(
        requests=len(seen),
        connections=len({arrival.peer for arrival in seen}),
        most=_most_in_a_second([arrival.at for arrival in seen]),
        refused=sum(arrival.retry_after > 0 for arrival in seen),
        without_quota=sum(map(_is_quota, seen)),
        too_early=sum(after.at < before.at + before.retry_after for before, after in pairwise(seen)),
        after_quota=sum(_is_quota(before) and after.at < before.at + quota_pause for before, after in pairwise(seen)),
        asked_twice=sum(times - 1 for times in _answers(seen).values()),
    )


def _most_in_a_second(times: Sequence[float]) -> int:
    first = most = 0
    for number, at in enumerate(times):
        while times[first] <= at - 1:
            first += 1
        most = max(most, number - first + 1)
    return most


def _answers(seen: Iterable[Arrival]) -> Counter[str]:
    """How often each video was answered, whether it exists or not."""
    return Counter(one for arrival in seen if arrival.path == "videos" and arrival.units for one in arrival.asked)


def _is_quota(arrival: Arrival) -> bool:
    return arrival.reason == "quotaExceeded"
