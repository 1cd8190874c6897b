"""What partitions cost: a claim's cost does not depend on the number of keys, of finished tasks, or of slots that wait.

Counted in steps of SQLite's machine and in statements, so that a busy computer cannot change the result.
"""

from typing import Any

from pitboss.engines.sqlite import batches, declared, partitions, registry
from pitboss.engines.sqlite.claim import claim
from pitboss.engines.sqlite.put import put
from pitboss.engines.sqlite.readers import Reader
from pitboss.model.batch import NewBatch
from pitboss.model.declared import Declared
from pitboss.model.partition import LOOK, Mode, Partitioning
from pitboss.model.queue import QueueSettings
from pitboss.model.session import Claimed, ClaimRequest, Slot
from pitboss.model.task import NewTask
from tests.engines.sqlite.test_costs import NOW, Do, Store


class Divided(Store):
    """A store whose queue has partitions, and a session with ten slots."""

    def __init__(self, mode: Mode = "static", slots: int = 10, max_per_key: int | None = None) -> None:
        super().__init__()
        self.session, self.slots = self.begin(), slots
        settings = QueueSettings(partitions=Partitioning(by="{k}", mode=mode), max_per_key=max_per_key)
        wanted = Declared(app="app", queues={"default": settings})
        self.do(lambda act: declared.declare(act, wanted, self.session, NOW))
        self.do(lambda act: partitions.take_slots(act, self.session, "default", "node", range(slots), None))
        self.term = self.do(lambda act: registry.campaign(act, self.session)).term

    def prepare(self, call: Do) -> None:
        """As `do`, without counting, which is slow."""
        self.connection.set_progress_handler(None, 1)
        self.do(call)
        self.connection.set_progress_handler(self._step, 1)

    def give(self, keys: int) -> None:
        """Give that many keys to the slots in turn."""
        owners = {f"k{key:05}": f"default/{key % self.slots}" for key in range(keys)}
        self.prepare(lambda act: partitions.assign(act, "default", owners, self.term))

    def keyed(self, *keys: int, **options: Any) -> list[NewTask]:
        made = (self.tasks(1, params=f'{{"k":"k{key:05}"}}', **options) for key in keys)
        return [task for (task,) in made]

    def put_keyed(self, *keys: int) -> None:
        self.prepare(lambda act: put(act, self.keyed(*keys)))

    def claim_for(self, *numbers: int, free: int = 1) -> Claimed:
        slots = tuple(Slot(free=free, number=number, queues=("default",)) for number in numbers)
        request = ClaimRequest(session=self.session, slots=slots, handlers=frozenset({"job"}))
        claimed: Claimed = self.do(lambda act: claim(act, request).claimed())
        return claimed


def test_a_put_with_keys_takes_one_statement_more() -> None:
    store = Divided()
    store.do(lambda act: put(act, store.keyed(*[1] * 64)))
    # The handler, the queue, a savepoint, the tasks, the key, the savepoint's release, the counts.
    assert store.executed == 7
    store.connection.close()


def test_ten_slots_take_few_statements() -> None:
    store = Divided()
    store.give(20)
    store.put_keyed(*range(20), *range(20))
    claimed = store.claim_for(*range(10))
    assert [one.slot for one in claimed.claims] == list(range(10))
    # The session, the queue, its slots, a look, the tasks, taking them, the counts.
    assert store.executed == 7
    store.settle(claimed)
    # The session, a savepoint, the ends by three statements, its release, the counts.
    assert store.executed == 7
    store.connection.close()


def cost_of_a_turn(keys: int, mode: Mode, max_per_key: int | None, finished: int = 0) -> tuple[int, int]:
    """Steps of a claim for ten slots, and of its end, where two thousand tasks have that many keys in turn."""
    store = Divided(mode, max_per_key=max_per_key)
    store.give(keys)
    for _ in range(finished):
        store.put_keyed(*range(50))
        store.settle(store.claim_for(*range(10), free=5))
    store.put_keyed(*(number % keys for number in range(2000)))
    claimed = store.claim_for(*range(10), free=5)
    taking = store.steps
    assert len(claimed.claims) == 50
    store.settle(claimed)
    store.connection.close()
    return taking, store.steps


def test_ten_thousand_keys_cost_no_more_than_twice_a_hundred() -> None:
    modes: tuple[Mode, ...] = ("static", "affinity")
    for mode in modes:
        for most in (None, 1):
            few, many = cost_of_a_turn(100, mode, most), cost_of_a_turn(10_000, mode, most)
            assert many[0] < 2 * few[0]
            assert many[1] < 2 * few[1]


def test_finished_tasks_cost_a_claim_nothing() -> None:
    fresh, used = cost_of_a_turn(100, "static", 2), cost_of_a_turn(100, "static", 2, finished=60)
    assert used[0] < 1.1 * fresh[0]
    assert used[1] < 1.1 * fresh[1]


def cost_behind_others(keys: int, tasks: int, own: bool) -> int:
    """Steps of a claim for the slot 1, where that many tasks of the slot 0 come first."""
    store = Divided()
    store.give(keys)
    store.put_keyed(*[0] * tasks)
    if own:
        store.put_keyed(*[1] * 5)
    assert len(store.claim_for(1, free=5).claims) == 5 * own
    store.connection.close()
    return store.steps


def test_a_backlog_of_other_slots_costs_no_more_than_a_look() -> None:
    for own in (False, True):
        assert cost_behind_others(100, 20 * LOOK, own) < 1.2 * cost_behind_others(100, 2 * LOOK, own)


def test_a_slot_whose_many_keys_have_no_tasks_costs_no_more_than_twice_one_with_few() -> None:
    assert cost_behind_others(10_000, 2 * LOOK, own=False) < 2 * cost_behind_others(100, 2 * LOOK, own=False)


def test_where_all_tasks_are_seen_the_keys_are_not_gone_through() -> None:
    assert cost_behind_others(10_000, 50, own=False) < 1.2 * cost_behind_others(100, 50, own=False)


def cost_of_drawing(keys: int, count: int, *, in_turn: bool) -> int:
    """Steps of a claim for ten slots from a batch of that many items, whose keys alternate or follow each other."""
    store = Divided()
    store.give(keys)
    items = store.keyed(*(number % keys if in_turn else number * keys // count for number in range(count)))
    store.prepare(lambda act: batches.create(act, NewBatch(id="b"), items))
    store.claim_for(*range(10))
    assert len(store.claim_for(*range(10)).claims) == 10
    store.connection.close()
    return store.steps


def test_drawing_costs_the_same_with_many_items_and_keys() -> None:
    few = cost_of_drawing(100, 2 * LOOK, in_turn=True)
    assert cost_of_drawing(100, 20 * LOOK, in_turn=True) < 1.2 * few
    assert cost_of_drawing(10_000, 20 * LOOK, in_turn=True) < 2 * few
    assert cost_of_drawing(50, 40 * LOOK, in_turn=False) < 1.5 * cost_of_drawing(50, 10 * LOOK, in_turn=False)


def cost_of_a_list(tasks: int, *, counts: bool) -> int:
    store = Divided()
    store.give(10)
    store.put_keyed(*(number % 10 for number in range(tasks)))
    store.steps = 0
    reader = Reader(store.connection, store.statements.by_name, NOW)
    found = partitions.listed(reader, "default", counts=counts)
    assert sum(one.unfinished for one in found) == (tasks if counts else 0)
    store.connection.close()
    return store.steps


def test_keys_are_listed_without_a_look_at_their_tasks() -> None:
    assert cost_of_a_list(5000, counts=False) == cost_of_a_list(10, counts=False) < 100


def test_counting_takes_a_few_steps_for_each_task() -> None:
    assert cost_of_a_list(5000, counts=True) < 20 * 5000
