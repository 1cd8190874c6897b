"""The tasks of the demonstration, the same in every run."""

import random
from collections.abc import Iterator
from typing import Any

from demo.catalogue import STYLES, TOPICS, Catalogue
from utils.validators import LONGEST_QUERY

POPULAR = 300  # ids of metadata tasks are from these, so that tasks share videos
UNKNOWN = ("AAAAAAAAAAA", "BBBBBBBBBBB")
NO_ID = "not-an-id"
TOO_LONG = "pottery " * LONGEST_QUERY

Task = dict[str, Any]


def searches(count: int) -> Iterator[Task]:
    """Every fourth one wants metadata too. The last one has a query that is too long: the worker refuses it."""
    chance = random.Random(count)
    for number in range(count - 1):
        query = f"{STYLES[number % len(STYLES)]} {TOPICS[number % len(TOPICS)]}"
        more = {"fetch_metadata": True} if number % 4 == 0 else {}
        yield _task("youtube.search", search_query=query, max_results=chance.randint(5, 50), **more)
    yield _task("youtube.search", search_query=TOO_LONG)


def metadata(count: int, catalogue: Catalogue) -> Iterator[Task]:
    """Every sixth one has ids that do not work beside those that do. The last one has only such ids."""
    chance = random.Random(count)
    public = [one.id for one in catalogue.videos.values() if not one.private][:POPULAR]
    private = [one.id for one in catalogue.videos.values() if one.private]
    for number in range(count - 1):
        ids = chance.sample(public, chance.randint(1, 120))
        bad = [*UNKNOWN, NO_ID, private[number]] if number % 6 == 0 else []
        yield _task("youtube.metadata", video_ids=[*ids, *bad])
    yield _task("youtube.metadata", video_ids=[*UNKNOWN, private[0]])


def _task(type_: str, **params: Any) -> Task:
    return {"type": type_, "params": params}
