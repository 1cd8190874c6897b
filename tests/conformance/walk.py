"""A long seeded walk through the acts: deeper than hypothesis goes in the same time, though nothing shrinks it."""

from random import Random
from typing import Any, ClassVar

from msgspec.structs import replace

from pitboss.model.filter import parsed
from pitboss.model.limits import rate
from pitboss.model.operation import Verb
from pitboss.model.queue import QueueChange
from pitboss.model.session import SessionInfo, Slot
from pitboss.model.task import Unique
from tests.conformance.acts import (
    FILTERS,
    HANDLERS,
    LASTS,
    NARROWED,
    ORDERS,
    PERIODS,
    QUEUES,
    RATES,
    REPEATED,
    SECOND,
    WORDS,
)
from tests.conformance.declared_acts import EVENT_KEYS, EVENTS, PACES, DeclaredActs
from tests.conformance.scarce_acts import (
    BATCH_ACTS,
    CHANGES,
    LANES,
    LEASES,
    MEMBERS,
    NEW_MEMBERS,
    REPORTS,
    RULES,
    WANTS,
)

WEIGHTS = {
    "put": 5,
    "work": 6,
    "claim": 3,
    "say_of_any_claim": 4,
    "say_with_a_forged_token": 1,
    "live": 4,
    "lead": 2,
    "operate": 4,
    "configure": 2,
    "access": 1,
    "happen": 2,
    "time_passes": 6,
    "pool": 2,
    "need": 4,
    "lease": 3,
    "outdo": 3,
    "create_batch": 2,
    "act_on_batch": 4,
    "declare_app": 2,
    "route": 1,
    "publish": 3,
    "schedule": 5,
    "alert": 2,
    "act_in_portions": 4,
}


class Walk:
    """Chooses acts and their arguments; the same seed walks the same way on every engine."""

    weights: ClassVar[dict[str, int]] = WEIGHTS

    def __init__(self, acts: DeclaredActs, seed: int) -> None:
        self.acts, self.dice = acts, Random(seed)
        self.taken: list[str] = []

    def go(self, steps: int) -> None:
        self.acts.begin()
        for _ in range(steps):
            (name,) = self.dice.choices(list(self.weights), list(self.weights.values()))
            self.taken.append(name)
            getattr(self, f"_{name}")()

    def _put(self) -> None:
        repeat, parent = self._sometimes(self._pick()), self._sometimes(self._pick())
        self.acts.put([self._options() for _ in range(self.dice.randint(1, 4))], repeat, parent)

    def _work(self) -> None:
        self.acts.work(self._worker(), self._request(), self._word())

    def _claim(self) -> None:
        self.acts.claim(self._worker(), self._request())

    def _say_of_any_claim(self) -> None:
        words = [(self._pick(), self.dice.random() < 0.7, self._word()) for _ in range(self.dice.randint(1, 4))]
        self.acts.say_of_any_claim(words)

    def _say_with_a_forged_token(self) -> None:
        if self.acts.claims:
            self.acts.say_with_a_forged_token(self._pick(), self._word(), self._pick(), self.dice.randint(0, 3))

    def _live(self) -> None:
        handlers = self.dice.choice([("a", "b"), ("a",), ("c",), ()])
        ttl = self.dice.choice([5, 15, 3600]) * SECOND
        act = self.dice.choices(["renew", "end", "open", "reclaim"], [4, 1, 2, 4])[0]
        self.acts.live(self._pick(), act, SessionInfo(host="h", handlers=handlers, ttl=ttl))

    def _lead(self) -> None:
        act = self.dice.choices(["campaign", "resign", "prune"], [4, 1, 1])[0]
        self.acts.lead(self._worker(), act, self.dice.choice([0, 0, 1]))

    def _operate(self) -> None:
        act = self.dice.choices(["cancel", "retry", "change", "prune", "read"], [2, 5, 4, 1, 3])[0]
        limit, age = self.dice.choice([1000, 2]), self.dice.choice([None, 0, 5 * SECOND])
        self.acts.operate(parsed(self.dice.choice(FILTERS)), act, limit, self.dice.random() < 0.5, age)

    def _configure(self) -> None:
        act = self.dice.choices(["queue", "register", "forget", "wish"], [4, 3, 1, 1])[0]
        names = self.dice.sample(HANDLERS, self.dice.randint(0, 2))
        self.acts.configure(act, self.dice.choice(QUEUES), self._change(), names)

    def _access(self) -> None:
        act = self.dice.choice(["remember", "add", "revoke", "change"])
        self.acts.access(act, self._pick(), self.dice.choice(QUEUES), self._change())

    def _happen(self) -> None:
        self.acts.happen(self.dice.choice(["record", "record", "read", "prune", "prune audit"]), self._pick())

    def _time_passes(self) -> None:
        steps = ["1us", "999999us", "1s", "4999999us", "5s", "16s", "61m"]
        self.acts.time_passes(self.dice.choices(steps, [3, 3, 5, 3, 5, 2, 0.2])[0])

    def _pool(self) -> None:
        dice = self.dice
        match dice.choices(["declare", "limit", "add", "change"], [2, 1, 4, 6])[0]:
            case "declare":
                self.acts.declare(dice.randrange(len(RULES)))
            case "limit":
                self.acts.limit(dice.randrange(60))
            case "add":
                self.acts.add([(dice.choice(MEMBERS), dice.choice(NEW_MEMBERS)) for _ in range(dice.randint(1, 2))])
            case _:
                names = dice.choice([None, *([name] for name in MEMBERS)])
                self.acts.change(names, dice.choice(CHANGES))

    def _need(self) -> None:
        """Tasks that need members, often claimed and settled at once."""
        dice = self.dice
        self.acts.need([self._options() for _ in range(dice.randint(1, 3))], dice.choice(WANTS))
        if dice.random() < 0.7:
            slots = (Slot(free=dice.choice([1, 2, 4]), ahead=dice.choice([0, 1]), queues=dice.choice([None, ("q4",)])),)
            self.acts.work(self._worker(), (slots, None), self._word())

    def _outdo(self) -> None:
        reports = [report for report in REPORTS if report is not None and report.outcome != "ok"]
        self.acts.outdo(self._worker(), self.dice.choice(reports), self.dice.randint(1, 6))

    def _lease(self) -> None:
        dice = self.dice
        act = dice.choices(["acquire", "release", "extend", "use", "move", "end", "again"], [4, 3, 1, 2, 2, 1, 2])[0]
        if act == "again":
            self.acts.use_again(self._pick())
        else:
            self.acts.lease(act, dice.choice(LEASES), dice.choice(WANTS), dice.choice(REPORTS))

    def _create_batch(self) -> None:
        dice = self.dice
        chosen = [self._options() for _ in range(dice.randint(0, 5))]
        self.acts.create_batch(chosen, dice.choice(LANES), self._sometimes(self._pick()), dice.random() < 0.5)

    def _act_on_batch(self) -> None:
        dice = self.dice
        if dice.random() < 0.15:
            self.acts.change_lane(dice.choice(LANES), dice.choice([1, 2, 3]))
        else:
            self.acts.act_on_batch(self._pick(), dice.choice(BATCH_ACTS), dice.choice([1000, 1000, 2]))

    def _declare_app(self) -> None:
        self.acts.declare_app(self._pick(), self.dice.choice([None, self._worker(), self._worker()]))

    def _route(self) -> None:
        self.acts.route(self._pick())

    def _publish(self) -> None:
        dice = self.dice
        chosen = [(dice.choice(EVENTS), dice.choice(EVENT_KEYS)) for _ in range(dice.randint(1, 3))]
        self.acts.publish(chosen, self._sometimes(self._pick()))

    def _schedule(self) -> None:
        self.acts.schedule(self.dice.choices(["put", "change", "fire", "prune"], [2, 2, 6, 1])[0], self._pick())

    def _alert(self) -> None:
        self.acts.alert(self.dice.choice(["note", "note", "silence", "end"]), self._pick())

    def _act_in_portions(self) -> None:
        dice = self.dice
        act = dice.choices(["begin", "advance", "change", "forget"], [3, 8, 1, 1])[0]
        options = (dice.choice(list(Verb)), dice.choice(FILTERS), dice.choice(PACES))
        self.acts.act_in_portions(act, self._pick(), options, dice.choice([100, 1, 2]))

    def _options(self) -> dict[str, Any]:
        dice = self.dice
        chosen: dict[str, Any] = {"handler": dice.choice("aaabbcr"), "queue": dice.choice(QUEUES)}
        possible: dict[str, list[Any]] = {
            "priority": [-1, 0, 1],
            "delay": [0, 1, SECOND, 5 * SECOND, 20 * SECOND],
            "unique": [Unique(key, period) for key in ("k1", "k2") for period in PERIODS],
            "max_attempts": [1, 2],
            "expires_in": [1, SECOND, 15 * SECOND],
            "tags": [(), ("t1",), ("t1", "u")],
            "params": ['{"n":1}', '{"n":"1"}', "[]", '"é"'],
            "want": WANTS,
            "order_key": ["o1", "o2"],
            "meta": ['{"trace":{"traceparent":"00-1"},"headers":{"n":1}}'],
        }
        return chosen | {name: dice.choice(values) for name, values in possible.items() if dice.random() < 0.3}

    def _request(self) -> tuple[Any, Any]:
        handlers = self.dice.choice([None, None, "abc", "ab", "a"])
        slots = tuple(self._slot() for _ in range(self.dice.choice([1, 1, 2, 3])))
        return slots, None if handlers is None else frozenset(handlers)

    def _slot(self) -> Slot:
        queues = self.dice.choice([None, None, QUEUES, ("q1",), ("q2", "q3"), ("q3", "q3"), ("q1", "q5"), ()])
        slot = Slot(free=self.dice.choice([3, 1, 1, 0]), ahead=self.dice.choice([0, 0, 2]), queues=queues)
        return slot if self.dice.random() < 0.5 else self._remote(slot)

    def _remote(self, slot: Slot) -> Slot:
        """As a remote worker asks."""
        dice = self.dice
        return replace(
            slot,
            worker=dice.choice(["", "w1", "w2"]),
            handlers=dice.choice(NARROWED),
            order=dice.choice(ORDERS),
            lasts=dice.choice(LASTS),
            repeat=dice.choice(REPEATED),
        )

    def _word(self) -> tuple[Any, ...]:
        dice = self.dice
        return (
            dice.choice(WORDS),
            self._sometimes(self._options()),
            dice.choice([None, 0, 10]),
            dice.choice([None, "w1"]),
            dice.choice(REPORTS),
        )

    def _change(self) -> QueueChange:
        match self.dice.randint(0, 4):
            case 4:
                return QueueChange(withdraw=self.dice.choice([("capacity",), ("rate",), ("capacity", "rate")]))
            case 0:
                return QueueChange(paused=self.dice.random() < 0.4, by=self.dice.choice([None, "ann"]))
            case 1:
                return QueueChange(capacity=self.dice.choice([None, 1, 3, 8]))
            case 2:
                return QueueChange(rate=rate(self.dice.choice(RATES)))
        return QueueChange(paused=False, capacity=None)

    def _worker(self) -> int:
        """Mostly the latest session, which is likely to live."""
        return len(self.acts.sessions) - 1 if self.dice.random() < 0.6 else self._pick()

    def _pick(self) -> int:
        return self.dice.randrange(1_000_000)

    def _sometimes(self, value: Any) -> Any:
        return value if self.dice.random() < 0.3 else None
