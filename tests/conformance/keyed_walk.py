"""A long seeded walk among queues with partitions."""

from typing import Any, ClassVar

from msgspec.structs import replace

from pitboss.model.pool_slot import slot_name
from pitboss.model.queue import QueueChange
from pitboss.model.session import SessionInfo, Slot
from tests.conformance.acts import SECOND
from tests.conformance.keyed_acts import (
    DIVIDED,
    KEY_CHANGES,
    KEYS,
    NODES,
    NUMBERS,
    OWNERS,
    PIDS,
    PLACES,
    KeyedActs,
)
from tests.conformance.scarce_acts import LANES
from tests.conformance.walk import Walk


class KeyedWalk(Walk):
    acts: KeyedActs
    weights: ClassVar[dict[str, int]] = {
        "put_keyed": 9,
        "keyed_work": 12,
        "keyed_claim": 10,
        "say_of_any_claim": 8,
        "divide": 1,
        "seat": 3,
        "assign": 6,
        "change_key": 1,
        "keyed_batch": 2,
        "act_on_batch": 3,
        "keyed_session": 2,
        "limit_keys": 1,
        "operate": 2,
        "time_passes": 5,
        "pool": 1,
        "publish": 1,
    }

    def __init__(self, acts: KeyedActs, seed: int) -> None:
        super().__init__(acts, seed)
        # The session that has the slots, most of the time.
        self.owner = 0

    def _divide(self) -> None:
        self.acts.divide(self._pick(), self.owner)
        self.acts.share_out(self.owner, (0, 1), self._owners())

    def _seat(self) -> None:
        """Mostly the same session takes slots again; a new one if it is not alive any more."""
        dice = self.dice
        who = self.owner if dice.random() < 0.7 else self._pick()
        places = dice.choice(PLACES) if dice.random() < 0.4 else (0, 1, 2)
        if not self.acts.seat(who, dice.choice(NODES), places, self._pick()):
            self.acts.live(0, "open", self._info(3600))
            who = len(self.acts.sessions) - 1
            self.acts.seat(who, "n", places, 1)
        self.owner = who

    def _assign(self) -> None:
        self.acts.lead(self.owner, "campaign", 0)
        self.acts.assign(self.dice.choice(DIVIDED), self._owners(), self.dice.choice([0, 0, 0, 0, 1]))

    def _change_key(self) -> None:
        dice = self.dice
        self.acts.change_key(dice.choice(DIVIDED), dice.choice(KEYS), dice.choice(KEY_CHANGES))

    def _put_keyed(self) -> None:
        self.acts.put_keyed([self._options() for _ in range(self.dice.randint(1, 4))], self._pick())

    def _keyed_work(self) -> None:
        self.acts.work(self.owner, self._keyed_request(), self._word())

    def _keyed_claim(self) -> None:
        self.acts.claim(self.owner, self._keyed_request())

    def _keyed_batch(self) -> None:
        dice = self.dice
        chosen = [self._options() | {"queue": dice.choice(DIVIDED)} for _ in range(dice.randint(1, 6))]
        items = [one | {"params": f'{{"n":{dice.randint(1, 2)}}}'} for one in chosen]
        self.acts.create_batch(items, dice.choice(LANES), self._sometimes(self._pick()), dice.random() < 0.5)

    def _keyed_session(self) -> None:
        act = self.dice.choice(["open", "open", "renew", "end"])
        self.acts.live(self._pick(), act, self._info(self.dice.choice([5, 15, 3600])))
        self.acts.live(self.owner, "renew", self._info(5))

    def _info(self, ttl: int) -> SessionInfo:
        return SessionInfo(host="h", pid=self.dice.choice(PIDS), handlers=("a", "b", "f"), ttl=ttl * SECOND)

    def _limit_keys(self) -> None:
        change = self.dice.choice([QueueChange(max_per_key=1), QueueChange(withdraw=("max_per_key",))])
        self.acts.configure("queue", self.dice.choice(DIVIDED), change, [])

    def _owners(self) -> dict[str, str]:
        slots = [*OWNERS, *(slot_name("default", number) for number in self.acts.numbers * 3)]
        return {key: self.dice.choice(slots) for key in KEYS if self.dice.random() < 0.6}

    def _keyed_request(self) -> tuple[Any, Any]:
        slots = tuple(self._keyed_slot() for _ in range(self.dice.choice([1, 1, 2, 3])))
        return slots, self.dice.choice([None, None, frozenset("abf")])

    def _keyed_slot(self) -> Slot:
        dice = self.dice
        slot = Slot(
            free=dice.choice([3, 1, 1]),
            ahead=dice.choice([0, 0, 2]),
            queues=dice.choice([None, DIVIDED, DIVIDED[:1], DIVIDED[1:]]),
            number=dice.choice(NUMBERS) if dice.random() < 0.2 else dice.choice(self.acts.numbers),
        )
        return slot if dice.random() < 0.7 else replace(self._remote(slot), ahead=0)
