"""What operations count, and what a portion makes of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pitboss.model.errors import InvalidInput, NotFound
from pitboss.model.filter import EVERYTHING, Filter, by, parsed, written
from pitboss.model.limits import rate
from pitboss.model.operation import (
    NewOperation,
    Operation,
    OperationChange,
    OperationStatus,
    Verb,
    advanced,
    begun,
    changed_operation,
    lasts,
    too_many_failed,
)
from pitboss.model.queue import Changed
from pitboss.model.states import State

BEGAN = 1_000_000


def operation(verb: Verb = Verb.RETRY, wanted: str = "", pace: str = "", most: int | None = None) -> Operation:
    windows = rate(pace) if pace else ()
    new = NewOperation(id="o", verb=verb, wanted=parsed(wanted), rate=windows, stop_on_failures=most)
    return begun(new, BEGAN)


def test_verbs_and_filters_say_which_states_it_is_about() -> None:
    assert operation().states == {State.FAILED, State.CANCELLED}
    assert operation(wanted="state:failed").states == {State.FAILED}
    assert operation(Verb.CANCEL).states == {State.HELD, State.SCHEDULED, State.PENDING, State.RUNNING}
    assert operation(Verb.DISCARD, "-state:completed").states == {State.FAILED, State.CANCELLED}
    assert operation(Verb.CANCEL, "state:failed").states == frozenset()


def test_a_full_portion_goes_on_behind_its_last_task() -> None:
    after = advanced(operation(), ["a", "b", "c"], None, 2, Changed(changed=1, refused=("b",)), 5)
    assert (after.cursor, after.status, after.done, after.refused) == ("b", OperationStatus.RUNNING, 1, 1)
    assert after.refused_tasks == ("b",)


def test_a_portion_that_read_without_finding_enough_goes_on_behind_what_it_read() -> None:
    after = advanced(operation(), ["a"], "m", 2, Changed(changed=1), 5)
    assert (after.cursor, after.status) == ("m", OperationStatus.RUNNING)


@pytest.mark.parametrize("found", [[], ["a"], ["a", "b"]])
def test_the_end_of_the_tasks_ends_it(found: list[str]) -> None:
    after = advanced(operation(), found, None, 2, Changed(changed=len(found)), 5)
    assert (after.status, after.ended_at, after.cursor) == (OperationStatus.DONE, 5, "".join(found[-1:]))


def test_only_the_first_refused_tasks_are_named() -> None:
    refused = tuple(f"{number:02}" for number in range(30))
    after = advanced(operation(), refused, None, 30, Changed(refused=refused), 5)
    assert (after.refused, after.refused_tasks) == (30, refused[:20])


def test_a_rate_says_how_large_a_portion_is_and_when_the_next_one_is_due() -> None:
    paced = operation(pace="10/s")
    assert (paced.allowed(100), paced.allowed(3), operation(pace="1/h").allowed(100)) == (5, 3, 1)
    assert operation().allowed(100) == 100
    first = advanced(paced, list("abcdef"), None, 5, Changed(changed=5), BEGAN)
    assert first.next_at == BEGAN + 500_000
    assert not first.may_advance("e", BEGAN + 499_999)
    assert first.may_advance("e", BEGAN + 500_000)
    assert not first.may_advance("d", BEGAN + 500_000)
    assert advanced(first, [], "m", 5, Changed(), BEGAN + 600_000).next_at == first.next_at
    assert lasts(rate("2/s, 30/m"), 10) == 20_000_000


def test_failures_stop_it() -> None:
    assert too_many_failed(operation(), 1000, 5) is None
    paced = operation(pace="1/s", most=3)
    assert too_many_failed(paced, 2, 5) is None
    stopped = too_many_failed(paced, 3, 5)
    assert stopped is not None
    assert (stopped.status, stopped.ended_at, stopped.failed_again) == (OperationStatus.STOPPED, 5, 3)


def test_an_ended_operation_cannot_be_changed() -> None:
    cancelled = changed_operation(operation(), OperationChange(cancel=True), 5)
    assert (cancelled.status, cancelled.why) == (OperationStatus.CANCELLED, "cancelled")
    assert changed_operation(cancelled, OperationChange(rate=rate("1/s")), 6) == cancelled
    assert changed_operation(operation(), OperationChange(), 5) == operation()
    with pytest.raises(NotFound):
        changed_operation(None, OperationChange(), 5)


def test_stopping_on_failures_needs_a_rate() -> None:
    with pytest.raises(InvalidInput, match="needs a retry at a rate"):
        operation(most=3)


TEXTS = st.text(min_size=0, max_size=8)
FILTERS = st.builds(
    lambda fields, negated: Filter(
        tuple(term for term in by(**fields).terms) + (parsed("-tag:x").terms if negated else ())
    ),
    st.dictionaries(st.sampled_from(["tag", "error", "reason", "key"]), st.lists(TEXTS, min_size=1), max_size=3),
    st.booleans(),
)


@given(FILTERS)
def test_a_filter_made_in_code_can_be_written(wanted: Filter) -> None:
    assert parsed(written(wanted)) == wanted


@pytest.mark.parametrize(
    "text",
    [
        "",
        "state:failed queue:mail task:fetch*",
        "attempts:>2 attempts:1,2 age:<=1h30m -wait:>90001ms",
        "args.shop.id:123 -args.a:x",
        '-"some \\"text\\"" "word:"',
        'error:"a b",c',
    ],
)
def test_what_is_written_means_the_same(text: str) -> None:
    assert parsed(written(parsed(text))) == parsed(text)
    assert written(EVERYTHING) == ""
