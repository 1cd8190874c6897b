"""Ids only grow, even if the clock is set back, and are UUIDs of version 7."""

from collections.abc import Iterator
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pitboss.model.errors import InvalidInput
from pitboss.model.ids import IdMaker, checked_id, make_id, millis_of


@given(st.lists(st.integers(0, 2**48 * 1000 - 2_000_000), min_size=1, max_size=50), st.integers(0, 2**62 - 1))
def test_ids_grow_whatever_the_clock_does(times: list[int], entropy: int) -> None:
    clock: Iterator[int] = iter(times)
    maker = IdMaker(lambda: next(clock), lambda bits: entropy)
    made = [maker() for _ in times]
    assert made == sorted(set(made))
    assert [checked_id(one) for one in made] == made


def test_a_clock_that_stands_still_makes_ids_by_the_ten_thousand() -> None:
    maker = IdMaker(lambda: 5_000_000, lambda bits: 2**bits - 1)
    made = [maker() for _ in range(10_000)]
    assert made == sorted(set(made))
    assert millis_of(made[0]) == 5_000
    assert millis_of(made[-1]) == 5_002


@given(st.integers(0, 2**48 - 1), st.integers(0, 4095), st.integers(0, 2**62 - 1))
def test_an_id_is_a_uuid_that_carries_its_time(millis: int, sequence: int, entropy: int) -> None:
    made = make_id(millis, sequence, entropy)
    assert str(UUID(made)) == made
    assert UUID(made).version == 7
    assert UUID(made).variant == "specified in RFC 4122"
    assert millis_of(made) == millis
    assert UUID(made).int & (2**62 - 1) == entropy


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1",
        "01900000-0000-4000-8000-000000000000",
        "01900000-0000-7000-c000-000000000000",
        "01900000-0000-7000-8000-00000000000A",
        "01900000-0000-7000-8000-000000000000\n",
        " 01900000-0000-7000-8000-000000000000",
        "{01900000-0000-7000-8000-000000000000}",
        "01900000000070008000000000000000",
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="not a task id"):
        checked_id(text)
