"""What an app's code declares beyond its handlers: queues, schedules, subscriptions and events.

Several apps may share a store, and two versions of one app run side by side during a rollout. So each declaration has
its app's name and the fingerprint of all that the app declares, and only the newest one counts.
"""

from collections.abc import Collection
from hashlib import blake2b

import msgspec

from pitboss.model.event import EventType, Subscription
from pitboss.model.queue import QueueSettings
from pitboss.model.schedule import ScheduleSpec


class Declared(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """All declarations of one app."""

    app: str
    queues: dict[str, QueueSettings] = {}
    schedules: tuple[ScheduleSpec, ...] = ()
    subscriptions: tuple[Subscription, ...] = ()
    events: tuple[EventType, ...] = ()

    @property
    def fingerprint(self) -> str:
        # A table of partitions has numbers as keys, which only become sortable text here.
        plain = msgspec.to_builtins(self, str_keys=True)
        return blake2b(msgspec.json.encode(plain, order="sorted"), digest_size=8).hexdigest()


def takes_over(fingerprint: str, present: str | None, seen: Collection[str], alive: Collection[str]) -> bool:
    """Whether declarations with this fingerprint replace the present ones.

    Those that were never seen are the newest. Older ones come back only when no live session declares the present ones:
    then it is a rollback, and not an old manager that was started again during a rollout.
    """
    return present is None or fingerprint not in seen or present not in alive
