"""The memory of a host: tasks of known size do not exceed it, and none waits for ever."""

from hypothesis import given
from hypothesis import strategies as st

from pitboss.model.placement import MemoryBudget, admits

GIB = 1 << 30
handlers = st.sampled_from("abcdefg")
sizes = st.dictionaries(handlers, st.integers(1, 100), max_size=7)
tasks = st.lists(handlers, max_size=20)


def room(budget: int | None, sizes: dict[str, int]) -> MemoryBudget:
    made = MemoryBudget(budget)
    for handler, size in sizes.items():
        made.learn(handler, size)
    return made


def needed(made: MemoryBudget, tasks: list[str]) -> int:
    return sum(made.expected(task) or 0 for task in tasks)


def test_two_heavy_tasks_are_not_started_where_one_has_room() -> None:
    made = room(3 * GIB, {"render": 2 * GIB, "mail": GIB // 50})
    assert made.admits("render", [])
    assert not made.admits("render", ["render"])
    assert made.admits("mail", ["render"])
    assert made.admits("render", ["mail"] * 10)


def test_a_task_larger_than_the_host_runs_alone() -> None:
    made = room(GIB, {"giant": 5 * GIB})
    assert made.admits("giant", [])
    assert not made.admits("giant", ["new"])
    assert not made.admits("new", ["giant"])


def test_a_new_handler_may_start_and_is_known_after_its_first_task() -> None:
    made = MemoryBudget(3 * GIB)
    assert made.expected("render") is None
    assert made.admits("render", ["render"])
    made.learn("render", 2 * GIB)
    assert abs((made.expected("render") or 0) / (2 * GIB) - 1) < 0.05
    assert not made.admits("render", ["render"])
    assert made.figures() == {"render": made.expected("render")}


def test_without_a_budget_everything_is_admitted() -> None:
    assert room(None, {"giant": 500 * GIB}).admits("giant", ["giant"] * 50)


def test_what_a_handler_needs_follows_what_its_tasks_use() -> None:
    made = MemoryBudget(10 * GIB)
    for _ in range(500):
        made.learn("grow", GIB)
    assert (made.expected("grow") or 0) < 1.1 * GIB
    for _ in range(100):
        made.learn("grow", 4 * GIB)
    assert (made.expected("grow") or 0) > 3.5 * GIB
    for _ in range(2000):
        made.learn("grow", GIB)
    assert (made.expected("grow") or 0) < 1.1 * GIB


@given(st.integers(1, 200), sizes, tasks)
def test_admitted_tasks_fit_or_there_is_one(budget: int, sizes: dict[str, int], asked: list[str]) -> None:
    made, running = room(budget, sizes), list[str]()
    for handler in asked:
        if made.admits(handler, running):
            running.append(handler)
        assert len(running) <= 1 or needed(made, running) <= budget


@given(st.integers(1, 200), sizes, handlers)
def test_whatever_it_needs_a_task_starts_on_an_empty_host(budget: int, sizes: dict[str, int], handler: str) -> None:
    assert room(budget, sizes).admits(handler, [])


@given(st.integers(1, 200), sizes, handlers, tasks, handlers)
def test_one_more_beside_it_never_makes_room(
    budget: int, sizes: dict[str, int], handler: str, running: list[str], another: str
) -> None:
    made = room(budget, sizes)
    if made.admits(handler, [*running, another]):
        assert made.admits(handler, running)


@given(st.integers(0, 300), st.integers(0, 300), st.integers(1, 300))
def test_the_rule(expected: int, in_use: int, budget: int) -> None:
    assert admits(expected, in_use, budget) == (in_use == 0 or in_use + expected <= budget)


def turns_until(made: MemoryBudget, large: str, running: list[str], small: str, *, ahead: bool) -> int | None:
    """Each turn a small task asks, then the oldest running one ends; after how many turns the large one may start."""
    for turn in range(50):
        if made.admits(large, running):
            return turn
        if made.admits(small, running, ahead=[large] if ahead else []):
            running = [*running, small]
        running = running[1:]
    return None


@given(st.integers(1, 200), sizes, handlers, handlers, st.lists(handlers, max_size=40))
def test_a_task_that_is_ahead_starts_when_those_that_run_have_ended(
    budget: int, sizes: dict[str, int], large: str, small: str, asked: list[str]
) -> None:
    made, running = room(budget, sizes), list[str]()
    for handler in asked:
        if made.admits(handler, running):
            running.append(handler)
    turns = turns_until(made, large, running, small, ahead=True)
    assert turns is not None
    assert turns <= len(running)


def test_an_endless_stream_of_small_tasks_keeps_a_large_one_out_unless_it_is_ahead() -> None:
    made = room(100, {"large": 90, "small": 20})
    assert turns_until(made, "large", ["small"] * 3, "small", ahead=False) is None
    assert turns_until(made, "large", ["small"] * 3, "small", ahead=True) == 3
