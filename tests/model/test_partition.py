"""Keys of tasks, and how a key changes hands."""

from string import Formatter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pitboss.model.canonical import to_json
from pitboss.model.errors import InvalidInput
from pitboss.model.partition import (
    LONGEST_KEY,
    Mode,
    Partition,
    PartitionChange,
    Partitioning,
    arrived,
    changed_partition,
    given_to,
    key_names,
    partition_key,
    shortened,
)
from pitboss.model.states import State

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30)
values = texts | st.integers(-(2**63), 2**64 - 1) | st.booleans() | st.floats(allow_nan=False, allow_infinity=False)
slots = st.sampled_from(["w/0", "w/1", "w/2"])
rows = st.builds(
    Partition,
    queue=st.just("q"),
    key=st.just("k"),
    owner=st.none() | slots,
    moving_to=st.none() | slots,
    epoch=st.integers(0, 5),
    pinned=st.none() | slots,
).filter(lambda one: one.moving_to is None or one.owner not in (None, one.moving_to))


@given(values)
def test_texts_stay_and_other_values_are_as_in_json(value: object) -> None:
    wanted = value if isinstance(value, str) else to_json(value)
    assert partition_key("{k}", to_json({"k": value, "other": 1})) == (shortened(wanted) or None)


@given(st.dictionaries(st.sampled_from(["a", "b"]), texts, min_size=2), texts)
def test_a_template_is_filled_in_like_a_format(params: dict[str, str], between: str) -> None:
    escaped = between.replace("{", "{{").replace("}", "}}")
    by = f"{{a}}{escaped}{{b}}"
    assert partition_key(by, to_json(params)) == (shortened(Formatter().vformat(by, (), params)) or None)


@pytest.mark.parametrize("params", ['{"k":null}', '{"k":[]}', '{"k":{}}', '{"k":""}', "{}", "[]", '"k"', "null", "7"])
def test_without_its_parameters_a_task_has_no_key(params: str) -> None:
    assert partition_key("{k}", params) is None
    assert partition_key("{k}{j}", params) is None


def test_an_empty_parameter_beside_others_makes_a_key() -> None:
    assert partition_key("{country}/{city}", '{"city":"","country":"NL"}') == "NL/"


def test_long_keys_that_begin_alike_stay_apart() -> None:
    assert partition_key("{k}", to_json({"k": "👩" * LONGEST_KEY})) == "👩" * LONGEST_KEY
    one, other = (partition_key("{k}", to_json({"k": "👩" * 300 + end})) for end in "ab")
    assert one is not None
    assert other is not None
    assert (len(one), len(other), one[:167] == other[:167], one == other) == (LONGEST_KEY, LONGEST_KEY, True, False)


@pytest.mark.parametrize(
    "by", ["", "state", "{}", "{0}", "{a.b}", "{a[0]}", "{a!r}", "{a:>3}", "{a", "a}", "{{a}}", "{a b}", "{a:}{b!s}"]
)
def test_what_is_no_template_is_refused(by: str) -> None:
    with pytest.raises(InvalidInput, match="not a partition key"):
        key_names(by)


def test_a_template_names_each_parameter_once() -> None:
    assert key_names("{a}/{b}-{a}!") == ("a", "b")


@pytest.mark.parametrize(("mode", "exclusive"), [("affinity", False), ("balanced", True), ("static", True)])
def test_only_with_affinity_any_slot_may_help(mode: Mode, exclusive: bool) -> None:
    assert Partitioning(by="{k}", mode=mode).exclusive is exclusive


@given(rows, slots, st.booleans(), st.booleans())
def test_no_key_changes_hands_while_its_tasks_run(one: Partition, slot: str, running: bool, exclusive: bool) -> None:
    after = given_to(one, slot, running=running, exclusive=exclusive)
    if one.owner is not None and running and exclusive:
        assert (after.owner, after.epoch) == (one.owner, one.epoch)
        assert after.moving_to == (None if slot == one.owner else slot)
    else:
        assert (after.owner, after.moving_to) == (slot, None)
        assert after.epoch == one.epoch + (one.owner != slot)
    assert given_to(after, slot, running=running, exclusive=exclusive) == after


@given(rows, st.booleans())
def test_a_move_arrives_when_nothing_runs(one: Partition, running: bool) -> None:
    after = arrived(one, running=running)
    if running or one.moving_to is None:
        assert after == one
    else:
        assert (after.owner, after.moving_to, after.epoch) == (one.moving_to, None, one.epoch + 1)


@given(rows, slots, st.booleans(), st.booleans())
def test_an_operator_moves_and_pins(one: Partition, slot: str, running: bool, exclusive: bool) -> None:
    def changed(change: PartitionChange) -> Partition:
        return changed_partition(one, change, running=running, exclusive=exclusive)

    assert changed(PartitionChange()) == one
    pinned = changed(PartitionChange(pinned=slot))
    assert (pinned.pinned, pinned.owner, pinned.moving_to) == (slot, one.owner, one.moving_to)
    assert changed(PartitionChange(pinned=None)).pinned is None
    both = changed(PartitionChange(pinned=slot, owner=slot))
    assert both.pinned == slot
    assert slot in (both.owner, both.moving_to)


def test_unfinished_tasks_are_summed_up() -> None:
    one = Partition(queue="q", key="k", counts={State.PENDING: 2, State.RUNNING: 1})
    assert (one.unfinished, Partition(queue="q", key="k").unfinished) == (3, 0)
