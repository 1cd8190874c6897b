"""What must be true at the end: in the app core, and at the webhook."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import datetime
from http import HTTPStatus
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

from agent_demo.webhook import Webhook
from app_core import FOLDERS, AppCore

# What the daily clean-up and the custom task find: see `_furnish`.
EXPIRED, LIVE, OLD, CONVERSATIONS = 3, 3, 2, 6
# A notice has three attempts, of two requests each.
REQUESTS = 6
# The activity with an idempotency key, and the one over the HTTP API of Pitboss.
_SHARED, _OPENED = 1, 1


class Amounts(Protocol):
    """How much was asked for."""

    @property
    def users(self) -> int: ...
    @property
    def messages(self) -> int: ...
    @property
    def activities(self) -> int: ...
    @property
    def samples(self) -> int: ...


class Findings(NamedTuple):
    """What the run did, and what it was told."""

    users: list[str]
    again: int
    refused: int
    published: int
    scale: Amounts
    once_ids: set[str]
    flaky: str
    down: str
    schedules: Any = None
    codes: dict[str, int] = {}  # noqa: RUF012 – the default of a named tuple is not changed

    def arrived(self, core: AppCore) -> bool:
        """Whether all that should come in has come in."""
        return (
            count(core, "workspaces") >= len(self.users)
            and count(core, "messages") >= self.published
            and count(core, "activity") >= self.scale.activities + _SHARED + _OPENED
            and count(core, "notices") >= len((self.users[0], self.flaky, self.down))
            and count(core, "incidents") >= 1
            and {"daily_cleanup", "custom_task"} <= {run["task"] for run in core.all("SELECT task FROM runs")}
            and len(ticks(core)) >= self.scale.samples
        )


def checks(found: Findings, core: AppCore, webhook: Webhook) -> Iterator[tuple[str, bool]]:
    """Each check in words, and whether it holds."""
    yield from _of_signups(found, core)
    yield from _of_events(found, core)
    yield from _of_failures(found, core, webhook)
    yield from _of_schedules(found, core)
    yield "all processes stopped when they were asked to", bool(found.codes) and not any(found.codes.values())


def _of_signups(found: Findings, core: AppCore) -> Iterator[tuple[str, bool]]:
    users = {row["id"] for row in core.all("SELECT id FROM users")}
    folders = defaultdict(set)
    for row in core.all("SELECT * FROM folders"):
        folders[row["user_id"]].add(row["name"])
    whole = folders.keys() == users and all(names == set(FOLDERS) for names in folders.values())
    yield f"each of {len(users)} users has a whole workspace", users == set(found.users) and whole
    yield "an address that signs up twice is refused, and there is no second user", found.again == HTTPStatus.CONFLICT
    yield "an event that does not fit its type is refused", found.refused == HTTPStatus.BAD_REQUEST


def _of_events(found: Findings, core: AppCore) -> Iterator[tuple[str, bool]]:
    messages = defaultdict(list)
    for row in core.all("SELECT * FROM messages ORDER BY number"):
        messages[row["user_id"]].append(row["text"])
    right = [f"message {number}" for number in range(found.scale.messages)]
    came = sum(map(len, messages.values()))
    yield (
        f"each of {found.published} messages came in once, also those published while no worker ran",
        (came == found.published == found.scale.users * found.scale.messages),
    )
    yield "the messages of each user came in their order", all(texts == right for texts in messages.values())
    activity = [json.loads(row["data"]) for row in core.all("SELECT data FROM activity")]
    numbers = sorted(one["number"] for one in activity if one["action"] == "edited")
    yield f"each of {len(numbers)} activities is logged once", numbers == list(range(found.scale.activities))
    others = Counter(one["action"] for one in activity)
    yield "an event with an idempotency key is one event", len(found.once_ids) == 1 and others["shared"] == _SHARED
    yield "an event that is published over the HTTP API of Pitboss is handled", others["opened"] == _OPENED


def _of_failures(found: Findings, core: AppCore, webhook: Webhook) -> Iterator[tuple[str, bool]]:
    channels = {row["user_id"]: row["channel"] for row in core.all("SELECT * FROM notices")}
    flaky, down = webhook.requests(found.flaky), webhook.requests(found.down)
    retried = flaky == [503, 503, 503, 503, 204] and channels.get(found.flaky) == "webhook"
    yield f"a notice that failed was tried again until it was taken ({len(flaky)} requests)", retried
    fallen = down == [503] * REQUESTS and channels.get(found.down) == "inbox"
    yield f"one that failed for good ({len(down)} requests) went to the inbox, by its fallback", fallen
    incidents = core.all("SELECT * FROM incidents")
    told = [(row["handler"], "is unknown" in row["error"]) for row in incidents]
    yield "an event that no retry can help is with the dead-letter handler", told == [("handle_custom_event", True)]


def _of_schedules(found: Findings, core: AppCore) -> Iterator[tuple[str, bool]]:
    runs = [(row["task"], json.loads(row["details"])) for row in core.all("SELECT * FROM runs")]
    cleaned = ("daily_cleanup", {"sessions": EXPIRED, "conversations": OLD}) in runs
    archived = count(core, "conversations WHERE archived_at IS NOT NULL")
    left = (count(core, "sessions"), archived) == (LIVE, OLD)
    yield f"the daily clean-up deleted {EXPIRED} sessions and archived {OLD} conversations", cleaned and left
    yield "the custom task indexed all conversations", count(core, "search_index") == CONVERSATIONS
    moments = ticks(core)
    gaps = {(after - before).total_seconds() for before, after in pairwise(moments)}
    whole = all(gap >= 1 and gap == int(gap) for gap in gaps) and not count(core, "runs WHERE times > 1")
    yield f"the schedule of every second ran for {len(moments)} ticks, for none of them twice", whole
    names = {one["name"] for one in found.schedules["schedules"]}
    yield (
        "pitboss schedules list shows all four",
        names
        == {
            "custom_task",
            "daily_cleanup",
            "resend_signups",
            "sample_figures",
        },
    )


def ticks(core: AppCore) -> list[datetime]:
    """The ticks for which the schedule of every second ran."""
    rows = core.all("SELECT scheduled_for FROM runs WHERE task = 'sample_figures' ORDER BY scheduled_for")
    return sorted(datetime.fromisoformat(row["scheduled_for"]) for row in rows)


def count(core: AppCore, table: str) -> int:
    number: int = core.all(f"SELECT count(*) AS n FROM {table}")[0]["n"]
    return number
