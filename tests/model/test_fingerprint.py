"""Failures with the same cause are one group, across deploys and values; others are not."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pitboss.model.fingerprint import fingerprint

TRACE = """Traceback (most recent call last):
  File "/srv/app/shop.py", line 10, in buy
    pay(order)
  File "/srv/app/bank.py", line 20, in pay
    raise BankError("order 17 refused")
"""
any_text = st.text(st.characters(exclude_categories=[]))
BASE = ("shop.buy", "BankError", "order 17 of 'ann' refused by 0x7f3a", TRACE)


@given(st.integers(0, 10**9), st.text(st.characters(exclude_characters="'\n", exclude_categories=["Cs"])), st.uuids())
def test_values_do_not_matter(number: int, name: str, uid: object) -> None:
    messages = [f"order {number} of '{name}' refused by {hex(number)}", f"order {uid} of '{name}' refused by 0xff"]
    assert {fingerprint(BASE[0], BASE[1], message, TRACE) for message in messages} == {fingerprint(*BASE)}


def test_line_numbers_and_folders_do_not_matter() -> None:
    moved = re.sub(r"line \d+", "line 999", TRACE).replace("/srv/app", "/opt/new/release")
    assert fingerprint(*BASE[:3], moved) == fingerprint(*BASE)


def test_only_the_first_line_of_the_message_counts() -> None:
    assert fingerprint(*BASE[:2], BASE[2] + "\nbecause of this and that", TRACE) == fingerprint(*BASE)


@pytest.mark.parametrize(
    ("place", "other"),
    [(0, "shop.sell"), (1, "CashError"), (2, "order refused for good"), (3, TRACE.replace("in pay", "in refund"))],
)
def test_another_cause_is_another_group(place: int, other: str) -> None:
    changed = [*BASE]
    changed[place] = other
    assert fingerprint(*changed) != fingerprint(*BASE)


@given(
    st.text(st.characters(exclude_categories=[])), st.text(), st.text(st.characters(exclude_categories=[])), st.text()
)
def test_it_is_always_twelve_hex_digits_and_always_the_same(handler: str, kind: str, message: str, trace: str) -> None:
    first = fingerprint(handler, kind, message, trace)
    assert re.fullmatch("[0-9a-f]{12}", first)
    assert fingerprint(handler, kind, message, trace) == first


def test_it_does_not_change_between_releases() -> None:
    assert fingerprint("h", "T", "m 1", "") == "64fdd372b0ae"
