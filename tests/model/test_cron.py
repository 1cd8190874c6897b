"""Cron schedules: what is refused, and ticks compared with an oracle that walks through time."""

import random
import time
from bisect import bisect_right
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import islice
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from pitboss.model.cron import checked_cron, checked_zone, next_tick, spoken, ticks
from pitboss.model.duration import SECOND
from pitboss.model.errors import InvalidInput
from tests.model.cron_oracle import AT_FIXED_TIMES, BY_SECONDS, FOLLOW_THE_CLOCK, around, changes, expected, schedule

# Changes by an hour, half an hour and two hours; midnight skipped and repeated; the last hour of a day; Ramadan.
ZONES = (
    "Europe/Prague", "America/New_York", "Australia/Lord_Howe", "Antarctica/Troll", "America/Havana", "Africa/Cairo",
    "Asia/Beirut", "America/Nuuk", "America/Santiago", "Africa/Casablanca", "Asia/Gaza", "Atlantic/Azores",
)  # fmt: skip
# A whole day left out, twice; clocks moved for good by 30 minutes, three hours and 15 minutes.
ONCE = (
    ("Pacific/Apia", 2011),
    ("Pacific/Kwajalein", 1993),
    ("America/Caracas", 2016),
    ("Antarctica/Casey", 2020),
    ("Asia/Kathmandu", 1985),
)
PRAGUE = "Europe/Prague"
HOSTILE_ZONES = ("\0", "..", "/etc/passwd", "\ud800", "right/UTC", "America", "x" * 9_999, "UTC")
unhurried = settings(deadline=None)  # a loaded machine may take a while
moments = st.integers(0, 4_102_444_800 * SECOND)  # until 2100
values = st.integers(0, 7).map(str) | st.sampled_from(["1-5", "*", "*/2", "2-6/2", "3/2", "1,4", "5,*/3"])
odd_fields = st.sampled_from(["L", "LW", "5L", "1#2", "MON", "FEB", "31", "30", "*/90", "7-1", "1-", "", "-1", "99"])
texts = st.lists(values | odd_fields, min_size=4, max_size=7).map(" ".join) | st.text(max_size=20)
schedules = st.lists(values, min_size=5, max_size=6).map(lambda parts: " ".join(fit(parts)))
zones = st.sampled_from((*ZONES, "UTC", "Asia/Kolkata"))


def fit(parts: list[str]) -> list[str]:
    """Days and months have no 0."""
    return [*parts[:-3], *(part.replace("0", "1") for part in parts[-3:-1]), parts[-1]]


def at(text: str, zone: str = PRAGUE, *, fold: int = 0) -> int:
    local = datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold)
    return round(local.timestamp()) * SECOND


def shown(cron: str, zone: str, day: str) -> list[str]:
    """The ticks of a day as its clock shows them, with the offset."""
    begin = at(day, zone)
    found = ticks(cron, zone, begin - 1, begin + 86_399 * SECOND)
    return [f"{datetime.fromtimestamp(tick // SECOND, ZoneInfo(zone)):%H:%M%z}" for tick in found]


def compare(zone: str, change: int, shape: str, chance: random.Random) -> None:
    there = around(ZoneInfo(zone), change, shape)
    right = expected(shape, there)
    begin, end = there.start * SECOND, there.end * SECOND
    assert tuple(ticks(shape, zone, begin, end)) == right, (zone, change, shape)
    after = chance.randrange(begin, end)
    at = bisect_right(right, after)
    if at < len(right):
        assert next_tick(shape, zone, after) == right[at], (zone, change, shape, after)


@pytest.mark.parametrize("zone", ZONES)
def test_ticks_around_a_change_are_those_of_the_oracle(zone: str) -> None:
    chance = random.Random(zone)
    for change in chance.sample(changes(ZoneInfo(zone), 2022, 2025), 2):
        for shape in (*chance.sample(FOLLOW_THE_CLOCK, 5), *chance.sample(AT_FIXED_TIMES, 5)):
            compare(zone, change, shape, chance)
        compare(zone, change, chance.choice(BY_SECONDS), chance)


@pytest.mark.parametrize(("zone", "year"), ONCE)
def test_ticks_around_a_rare_change_are_those_of_the_oracle(zone: str, year: int) -> None:
    chance = random.Random(zone)
    for change in changes(ZoneInfo(zone), year, year):
        for shape in (*chance.sample(FOLLOW_THE_CLOCK, 4), *chance.sample(AT_FIXED_TIMES, 4)):
            compare(zone, change, shape, chance)


@unhurried
@given(schedules, zones, moments)
def test_a_tick_matches_the_schedule_and_none_is_left_out_before_it(cron: str, zone: str, after: int) -> None:
    assume(not refusal(checked_cron, cron))
    tick = next_tick(cron, zone, after)
    assert tick is not None
    assert tick > after
    rule = schedule(cron)
    if not rule.fixed:
        local = datetime.fromtimestamp(tick // SECOND, ZoneInfo(zone)).replace(tzinfo=UTC)
        assert rule.matches(round(local.timestamp()))
    chance = random.Random(after)
    for earlier in (chance.randrange(after, tick) for _ in range(3)):
        assert next_tick(cron, zone, earlier) == tick


@unhurried
@given(schedules, zones, moments)
def test_ticks_are_repeated_next_ticks(cron: str, zone: str, after: int) -> None:
    assume(not refusal(checked_cron, cron))
    found = list(islice(ticks(cron, zone, after, 2**62), 20))
    assert found == sorted(set(found))
    assert found[0] > after
    assert found == [next_tick(cron, zone, before) for before in (after, *found[:-1])]
    assert list(ticks(cron, zone, after, found[-1])) == found
    assert list(ticks(cron, zone, after, found[-1] - 1)) == found[:-1]


def test_ticks_are_found_one_by_one() -> None:
    assert list(islice(ticks("* * * * * *", "UTC", 0, 2**62), 3)) == [SECOND, 2 * SECOND, 3 * SECOND]


@unhurried
@given(texts, zones, moments)
@example("0 0 29 2 */7", "Australia/Lord_Howe", 3_865_363_200 * SECOND)  # 29 February on a Sunday: 40 years
@example("* * 29 2 */7", "Australia/Lord_Howe", 3_865_363_200 * SECOND)
@example("59 59 23 31 12 *", "Europe/Prague", 0)
@example("0-59 0-59 2 * * *", "Europe/Prague", 1_729_990_800 * SECOND)
def test_any_text_is_refused_or_ticks_soon(cron: str, zone: str, after: int) -> None:
    if error := refusal(checked_cron, cron):
        assert error.why
        assert error.fix
        return
    assert checked_cron(checked_cron(cron)) == checked_cron(cron)
    assert next_tick(checked_cron(cron), zone, after) == next_tick(cron, zone, after)
    assert spoken(cron, zone)
    assert min(work(cron, zone, after) for _ in range(3)) < 0.01


@unhurried
@given(st.text(max_size=20) | st.sampled_from(HOSTILE_ZONES))
def test_any_zone_is_known_or_refused(name: str) -> None:
    if error := refusal(checked_zone, name):
        assert error.why
        assert error.fix
    else:
        ZoneInfo(name)


def work(cron: str, zone: str, after: int) -> float:
    """CPU seconds."""
    began = time.thread_time()
    next_tick(cron, zone, after)
    return time.thread_time() - began


def refusal(check: Callable[[str], str], text: str) -> InvalidInput | None:
    try:
        check(text)
    except InvalidInput as error:
        return error
    return None


def test_a_skipped_time_runs_once_at_the_jump() -> None:
    assert shown("30 2 * * *", PRAGUE, "2024-03-31") == ["03:00+0200"]
    assert shown("0 30 2 * * *", PRAGUE, "2024-03-31") == ["03:00+0200"]
    assert shown("0,15,30,45 2 * * *", PRAGUE, "2024-03-31") == ["03:00+0200"]
    assert shown("0 2,3 * * *", PRAGUE, "2024-03-31") == ["03:00+0200"]


def test_a_repeated_time_runs_the_first_time_only() -> None:
    assert shown("30 2 * * *", PRAGUE, "2024-10-27") == ["02:30+0200"]
    assert shown("0 1-3 * * *", PRAGUE, "2024-10-27") == ["01:00+0200", "02:00+0200", "03:00+0100"]
    second_pass = at("2024-10-27T02:15", fold=1)
    assert next_tick("30 2 * * *", PRAGUE, second_pass) == at("2024-10-28T02:30")
    assert next_tick("0 3 * * *", PRAGUE, second_pass) == at("2024-10-27T03:00")


def test_with_a_star_it_follows_the_clock() -> None:
    assert shown("*/30 2 * * *", PRAGUE, "2024-03-31") == []
    assert shown("*/30 2 * * *", PRAGUE, "2024-10-27") == ["02:00+0200", "02:30+0200", "02:00+0100", "02:30+0100"]
    assert len(list(ticks("*/15 * * * *", PRAGUE, at("2024-03-31"), at("2024-04-01")))) == 23 * 4
    assert len(list(ticks("*/15 * * * *", PRAGUE, at("2024-10-27"), at("2024-10-28")))) == 25 * 4


@pytest.mark.parametrize("cron", ["0,30 0 1 1,7 *", "*/30 0 1 1,7 *", "*/30 * 1 1,7 *"])
def test_changes_on_the_way_to_a_distant_tick_do_not_move_it(cron: str) -> None:
    assert next_tick(cron, PRAGUE, at("2024-01-15T12:00")) == at("2024-07-01T00:00")
    assert next_tick(cron, PRAGUE, at("2024-07-15T12:00")) == at("2025-01-01T00:00")
    assert next_tick(cron, PRAGUE, at("2024-03-30T12:00")) == at("2024-07-01T00:00")


def test_half_an_hour_costs_no_tick() -> None:
    """cronsim leaves out 04:00 here."""
    assert shown("0 */4 * * *", "Australia/Lord_Howe", "2024-04-07")[:2] == ["00:00+1100", "04:00+1030"]


def test_a_midnight_that_is_skipped_is_not_shown() -> None:
    """cronsim ticks at 00:00, which does not exist, if it comes from another day."""
    assert shown("* 0 * * 0", "America/Havana", "2024-03-10") == []
    assert shown("30 0 * * 0", "America/Havana", "2024-03-10") == ["01:00-0400"]


def test_every_second() -> None:
    assert next_tick("* * * * * *", "UTC", 5) == SECOND
    assert next_tick("* * * * * *", "UTC", SECOND) == 2 * SECOND


def test_ticks_end_with_the_calendar_and_begin_with_the_epoch() -> None:
    last = round(datetime(9999, 12, 31, 23, 59, tzinfo=UTC).timestamp()) * SECOND
    for zone in ("UTC", PRAGUE, "America/New_York", "Asia/Tokyo"):
        assert next_tick("0 0 1 1 *", zone, last) is None
        assert next_tick("* * * 2 *", zone, last) is None
    assert next_tick("0 0 * * *", "UTC", 10**30) is None
    assert next_tick("* * * * *", "UTC", -(10**30)) == 0


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        (" */5\t*  * * * ", "*/5 * * * *"),
        ("@hourly", "0 * * * *"),
        ("@DAILY", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@weekly", "0 0 * * 0"),
        ("@monthly", "0 0 1 * *"),
        (" @yearly ", "0 0 1 1 *"),
        ("@annually", "0 0 1 1 *"),
        ("00 06 * * mon-FRI", "0 6 * * 1-5"),
        ("0 0 * jan,DEC 7", "0 0 * 1,12 0"),
        ("0 30 2 * * *", "30 2 * * *"),
        ("15 30 2 * * *", "15 30 2 * * *"),
        ("* * * * * *", "* * * * * *"),
        ("30,5,5,10-40 * * * *", "5,10-40 * * * *"),
        ("5,*/10 * * * *", "*/10,5 * * * *"),
        ("5,* */1 * * 0-7", "* * * * 0-6"),
        ("5/10 * * * *", "5-55/10 * * * *"),
        ("7-8/2 * * * *", "7 * * * *"),
        ("*/2,0-59 * * * *", "*/2,0-59 * * * *"),
        ("0 0 lw,L,3 * *", "0 0 3,L,LW * *"),
        ("0 0 * * friL,7#2,5-7", "0 0 * * 5-7,0#2,5L"),
        ("0 0 29 2 *", "0 0 29 2 *"),
        ("0 0 30 2 1", "0 0 30 2 1"),
    ],
)
def test_one_spelling(text: str, normal: str) -> None:
    assert checked_cron(text) == normal


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it has 0 fields, not 5 or 6"),
        ("* * * *", "it has 4 fields"),
        ("* * * * * * *", "it has 7 fields"),
        ("60 * * * *", "minute 60 is not between 0 and 59"),
        ("60 * * * * *", "second 60 is not between 0 and 59"),
        ("* 24 * * *", "hour 24 is not between 0 and 23"),
        ("* * 0 * *", "day of month 0 is not between 1 and 31"),
        ("* * * 13 *", "month 13 is not between 1 and 12"),
        ("* * * * 8", "day of week 8 is not between 0 and 7"),
        ("* * * * MOX", '"MOX" is not a day of week'),
        ("* * * MON *", '"MON" is not a month'),
        ("0 22-2 * * *", 'the range "22-2" goes backwards'),
        ("*/0 * * * *", 'the step in "*/0" is not between 1 and 60'),
        ("*/90 * * * *", 'the step in "*/90" is not between 1 and 60'),
        ("5-5/10 * * * *", 'the step in "5-5/10" is not between 1 and 1'),
        ("1,,2 * * * *", '"" is not a minute'),
        ("1/2/3 * * * *", '"1/2/3" is not a minute'),
        ("-5 * * * *", '"-5" is not a minute'),
        ("1.5 * * * *", '"1.5" is not a minute'),
        ("* * L/2 * *", '"L" is not a day of month'),
        ("* * * * 1#6", '"1#6" is not a day of week'),
        ("* * * * L", '"L" is not a day of week'),
        ("0 0 30 2 *", "no date matches it"),
        ("0 0 31 4,6,9,11 *", "no date matches it"),
        ("0 0 */20 * 1L", "no date matches it"),
        ("@reboot", "the aliases are @hourly, @daily"),
        ("@every 5m", "the aliases are @hourly, @daily"),
        ("٥ * * * *", "characters other than ASCII"),
        ("ſun * * * *", "characters other than ASCII"),
        ("1," * 600 + "1 * * * *", "more than 1000 characters"),
    ],
)
def test_what_is_no_schedule_is_refused(text: str, why: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        checked_cron(text)
    assert why in caught.value.why
    with pytest.raises(InvalidInput):
        next_tick(text, "UTC", 0)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("Europe/Praha", "Europe/Prague"),
        ("europe/prague", "Europe/Prague"),
        ("America/NewYork", "America/New_York"),
        ("Nowhere/At_All", 'write it like "Europe/Prague"'),
        ("", 'write it like "Europe/Prague"'),
        ("localtime", 'write it like "Europe/Prague"'),
        ("+02:00", "name a place"),
        ("UTC+2", "name a place"),
        ("gmt-3", "name a place"),
        ("Etc/GMT+5", "name a place"),
    ],
)
def test_what_is_no_zone_is_refused(name: str, hint: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        checked_zone(name)
    assert hint in caught.value.fix
    with pytest.raises(InvalidInput):
        next_tick("* * * * *", name, 0)


def test_zones_are_known_without_the_system() -> None:
    for name in ("UTC", "Etc/UTC", "GMT", "US/Eastern", "Asia/Kathmandu", *ZONES):
        assert checked_zone(name) == name


def test_the_oracle_knows_the_calendar() -> None:
    """31 May 2024 is the last day and the last weekday of its month, and the fifth and last Friday."""
    day = round(datetime(2024, 5, 31, tzinfo=UTC).timestamp())
    for text in ("0 0 L * *", "0 0 LW * *", "0 0 * * 5L", "0 0 * * FRI#5", "0 0 1 * FRI", "0 0 31 MAY *"):
        assert schedule(text).matches(day)
        assert not schedule(text).matches(day - 86_400)
    assert not schedule("0 0 */2 * 6").matches(day)
