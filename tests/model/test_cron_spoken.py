"""Schedules in words: some word by word, and any of them understood again by a reader that knows only the words."""

import re
from collections.abc import Iterator

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from pitboss.model.cron import checked_cron, spoken
from pitboss.model.errors import InvalidInput
from tests.model.cron_oracle import Schedule, day_matches, schedule

MONTHS = [
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
]  # fmt: skip
WEEKDAYS = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"]
UNITS = {"second": range(60), "minute": range(60), "hour": range(24)}
FOUR_YEARS = range(19_723, 19_723 + 1_461)  # from 2024
Values = frozenset[int | str]
Times = tuple[frozenset[int], frozenset[int], frozenset[int]]
EVERY_DAY: Values = frozenset(range(1, 32))
EVERY_WEEKDAY: Values = frozenset(range(7))


@pytest.mark.parametrize(
    ("cron", "words"),
    [
        ("* * * * *", "every minute"),
        ("*/15 * * * *", "every 15 minutes"),
        ("*/60 * * * *", "every 60 minutes"),
        ("* * * * * *", "every second"),
        ("*/10 * * * * *", "every 10 seconds"),
        ("5 * * * * *", "at second 5 of every minute"),
        ("*/7 * * * * *", "at seconds 0, 7, 14, 21, 28, 35, 42, 49 and 56 of every minute"),
        ("0 * * * * *", "every minute"),
        ("@hourly", "at minute 0 of every hour (Europe/Prague)"),
        ("5 * * * *", "at minute 5 of every hour (Europe/Prague)"),
        ("5,35 * * * *", "at minutes 5 and 35 of every hour (Europe/Prague)"),
        ("10-20,40 * * * *", "at minutes 10 to 20 and 40 of every hour (Europe/Prague)"),
        ("0-59 * * * *", "at minutes 0 to 59 of every hour (Europe/Prague)"),
        ("*/25 * * * *", "at minutes 0, 25 and 50 of every hour (Europe/Prague)"),
        ("*/4,*/7 * * * *",
         "at every 4th minute from 0 to 56 and minutes 0, 7, 14, 21, 28, 35, 42, 49 and 56 of every hour "
         "(Europe/Prague)"),
        ("1-59/2 * * * *", "at every 2nd minute from 1 to 59 of every hour (Europe/Prague)"),
        ("1-59/3 * * * *", "at every 3rd minute from 1 to 58 of every hour (Europe/Prague)"),
        ("5,*/20 * * * *", "at minutes 0, 5, 20 and 40 of every hour (Europe/Prague)"),
        ("*/10 5 * * * *", "every 10 seconds of minute 5 of every hour (Europe/Prague)"),
        ("* */30 * * * *", "every second of minutes 0 and 30 of every hour (Europe/Prague)"),
        ("30 30 * * * *", "at second 30 of minute 30 of every hour (Europe/Prague)"),
        ("30 * 6,7 * * *", "every day at second 30 of every minute of hours 6 and 7 (Europe/Prague)"),
        ("* * 1 * * *", "every second of hour 1 every day (Europe/Prague)"),
        ("0 0 * * *", "every day at 00:00 (Europe/Prague)"),
        ("@midnight", "every day at 00:00 (Europe/Prague)"),
        ("30 6 * * *", "every day at 06:30 (Europe/Prague)"),
        ("15 30 6 * * *", "every day at 06:30:15 (Europe/Prague)"),
        ("0 6,18 * * *", "every day at 06:00 and 18:00 (Europe/Prague)"),
        ("0,30 6,18 * * *", "every day at 06:00, 06:30, 18:00 and 18:30 (Europe/Prague)"),
        ("0 */6 * * *", "every day at 00:00, 06:00, 12:00 and 18:00 (Europe/Prague)"),
        ("0 */24 * * *", "every day at 00:00 (Europe/Prague)"),
        ("0 */2 * * *", "every 2 hours from 00:00 to 22:00 every day (Europe/Prague)"),
        ("30 */5 * * *", "every 5 hours from 00:30 to 20:30 every day (Europe/Prague)"),
        ("0 9-17 * * *", "every hour from 09:00 to 17:00 every day (Europe/Prague)"),
        ("0 9-17/2 * * 1-5", "every 2 hours from 09:00 to 17:00 on Monday to Friday (Europe/Prague)"),
        ("* 3 * * *", "every minute from 03:00 to 03:59 every day (Europe/Prague)"),
        ("*/15 9-17 * * *", "every 15 minutes from 09:00 to 17:45 every day (Europe/Prague)"),
        ("*/15 9-17 * * 1-5", "every 15 minutes from 09:00 to 17:45 on Monday to Friday (Europe/Prague)"),
        ("*/20 */3 * * *", "every 20 minutes of hours 0, 3, 6, 9, 12, 15, 18 and 21 every day (Europe/Prague)"),
        ("* 3,5 * * *", "every minute of hours 3 and 5 every day (Europe/Prague)"),
        ("1,2,3 4,5 * * *", "every day at minutes 1, 2 and 3 of hours 4 and 5 (Europe/Prague)"),
        ("30 6 * * 1-5", "at 06:30 on Monday to Friday (Europe/Prague)"),
        ("30 6 * * MON,WED,FRI", "at 06:30 on Monday, Wednesday and Friday (Europe/Prague)"),
        ("30 6 * * 5-7", "at 06:30 on Friday to Sunday (Europe/Prague)"),
        ("0 0 * * 1/2", "at 00:00 on Monday, Wednesday, Friday and Sunday (Europe/Prague)"),
        ("0 0 * * */2", "at 00:00 on Sunday, Tuesday, Thursday and Saturday (Europe/Prague)"),
        ("@weekly", "at 00:00 on Sunday (Europe/Prague)"),
        ("* * * * 1", "every minute on Monday (Europe/Prague)"),
        ("5 * * * 1", "at minute 5 of every hour on Monday (Europe/Prague)"),
        ("0 0 * * 5L", "at 00:00 on the last Friday of the month (Europe/Prague)"),
        ("0 0 * * 1#1", "at 00:00 on the 1st Monday of the month (Europe/Prague)"),
        ("0 0 * * 3,1#2", "at 00:00 on Wednesday and the 2nd Monday of the month (Europe/Prague)"),
        ("0 0 * 1 5L", "at 00:00 on the last Friday of the month in January (Europe/Prague)"),
        ("0 0 1 * *", "at 00:00 on day 1 of every month (Europe/Prague)"),
        ("0 0 1,15,20-25 * *", "at 00:00 on days 1, 15 and 20 to 25 of every month (Europe/Prague)"),
        ("0 0 */2 * *", "at 00:00 on every 2nd day from 1 to 31 of every month (Europe/Prague)"),
        ("0 0 */5 * *", "at 00:00 on days 1, 6, 11, 16, 21, 26 and 31 of every month (Europe/Prague)"),
        ("0 0 L * *", "at 00:00 on the last day of every month (Europe/Prague)"),
        ("0 0 LW * *", "at 00:00 on the last weekday (Monday to Friday) of every month (Europe/Prague)"),
        ("0 0 15,L * *", "at 00:00 on day 15 and the last day of every month (Europe/Prague)"),
        ("@yearly", "at 00:00 on day 1 of January (Europe/Prague)"),
        ("0 0 29 2 *", "at 00:00 on day 29 of February (Europe/Prague)"),
        ("0 0 31 */2 *",
         "at 00:00 on day 31 of January, March, May, July, September and November (Europe/Prague)"),
        ("0 0 * 1-3 *", "every day at 00:00 in January to March (Europe/Prague)"),
        ("*/5 * * 6 *", "every 5 minutes in June (Europe/Prague)"),
        ("*/5 * * 6 1", "every 5 minutes on Monday in June (Europe/Prague)"),
        ("0 0 13 * 5", "at 00:00 on day 13 of the month or on Friday (Europe/Prague)"),
        ("0 0 1 1,7 1", "at 00:00 in January and July, on day 1 of the month or on Monday (Europe/Prague)"),
        ("0 0 1-31 * 1", "at 00:00 on days 1 to 31 of the month or on Monday (Europe/Prague)"),
        ("0 0 */10 * 1", "at 00:00 on days 1, 11, 21 and 31 of every month, only if that day is Monday "
         "(Europe/Prague)"),
        ("0 0 1-7 3 */3",
         "at 00:00 on days 1 to 7 of March, only if that day is Sunday, Wednesday or Saturday (Europe/Prague)"),
    ],
)  # fmt: skip
def test_words(cron: str, words: str) -> None:
    assert spoken(cron, "Europe/Prague") == words


def test_the_zone_is_utc_unless_it_is_named() -> None:
    assert spoken("0 0 * * *") == "every day at 00:00 (UTC)"
    with pytest.raises(InvalidInput):
        spoken("* * * * *", "Nowhere")


# Every kind of term, with values that all fields have.
numbers = st.integers(1, 7)
terms = st.one_of(
    st.just("*"),
    numbers.map(str),
    st.tuples(numbers, numbers).map(lambda pair: f"{min(pair)}-{max(pair)}"),
    st.integers(1, 7).map(lambda step: f"*/{step}"),
    st.tuples(st.integers(1, 2), st.integers(6, 7), st.integers(1, 4)).map(lambda t: f"{t[0]}-{t[1]}/{t[2]}"),
)
large = st.sampled_from(["0", "59", "8-40", "1-59/2", "0-58/2", "20/3", "*/11", "*/13", "*/30"])
hours = st.sampled_from(["0", "23", "8-20", "1-23/2", "20/2", "*/11", "*/6"])
days = st.sampled_from(["L", "LW", "31", "1-31", "10/3", "*/11", "1-30/2"])
weekdays = st.sampled_from(["0", "0-6", "0-7", "5L", "SUNL", "1#2", "SAT#5", "TUE-THU", "*/2", "6-7"])


def field(*more: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.just("*") | st.lists(st.one_of(terms, *more), min_size=1, max_size=3).map(",".join)


schedules = st.builds(
    lambda *parts: " ".join(part for part in parts if part),
    st.sampled_from(["", "", "0"]) | field(large),
    field(large),
    field(hours),
    field(days),
    field(st.sampled_from(["8-12", "JAN", "SEP-NOV", "7/2"])),
    field(weekdays),
)


@settings(deadline=None)  # a loaded machine may take a while
@given(schedules)
@example("*/2,1-59 * * * *")
@example("0 0 L,*/11 * 5L")
def test_the_words_mean_the_schedule_and_nothing_else(cron: str) -> None:
    try:
        checked_cron(cron)
    except InvalidInput:
        assume(False)
    rule, text = schedule(cron), spoken(cron, "Asia/Kolkata")
    understood = heard(text.removesuffix(" (Asia/Kolkata)"))
    assert understood[:3] == rule[:3], text
    assert [day for day in FOUR_YEARS if day_matches(understood, day) != day_matches(rule, day)] == [], text


def heard(text: str) -> Schedule:
    """What a person understands."""
    time = re.split(" on | in ", text, maxsplit=1)[0]
    seconds, minutes, hours = heard_time(time.removeprefix("every day ").removesuffix(" every day"))
    days, months, weekdays, both = heard_date(text[len(time) + 1 :])
    return Schedule(seconds, minutes, hours, days, months, weekdays, both_days=both, fixed=False)


def heard_time(text: str) -> Times:
    if re.match(r"at \d\d:", text):
        times = {tuple(map(int, time.split(":"))) for time in re.findall(r"[\d:]+", text)}
        second, minute, hour = (frozenset(time[n] if n < len(time) else 0 for time in times) for n in (2, 1, 0))
        assert len(times) == len(second) * len(minute) * len(hour)
        return second, minute, hour
    if match := re.fullmatch(r"every (?:(\d+) )?(hour|minute)s? from (\d\d):(\d\d) to (\d\d):(\d\d)", text):
        first_hour, first, last_hour, last = map(int, match.groups()[2:])
        step = int(match[1] or 1)
        if match[2] == "hour":
            assert first == last
            assert (last_hour - first_hour) % step == 0
            return frozenset({0}), frozenset({first}), frozenset(range(first_hour, last_hour + 1, step))
        assert first == 0
        assert last == 60 - step
        return frozenset({0}), frozenset(range(0, 60, step)), frozenset(range(first_hour, last_hour + 1))
    return heard_levels(text.split(" of "))


def heard_levels(parts: list[str]) -> Times:
    """Before the first unit that is named there is only 0. A unit that is not named after it is not restricted."""
    found: dict[str, frozenset[int]] = {}
    for part in parts:
        (unit,) = set(re.findall("second|minute|hour", part))
        if match := re.fullmatch(r"every (?:(\d+) )?(?:second|minute|hour)s?", part):
            step = int(match[1] or 1)
            assert 60 % step == 0
            found[unit] = frozenset(UNITS[unit][::step])
        else:
            found[unit] = frozenset(heard_numbers(part.removeprefix("at "), unit))
    assert list(found) == [unit for unit in UNITS if unit in found]
    if "hour" not in found:
        assert parts[-1].startswith("every ")
    if "minute" not in found and "hour" in found:
        assert parts[0].startswith("every ")
    second = found.get("second", frozenset({0}))
    minute = found.get("minute", frozenset(UNITS["minute"]))
    return second, minute, found.get("hour", frozenset(UNITS["hour"]))


def heard_numbers(text: str, unit: str) -> Iterator[int]:
    steps = rf"every (\d+)(?:st|nd|rd|th) {unit} from (\d+) to (\d+)"
    for step, first, last in re.findall(steps, text):
        yield from range(int(first), int(last) + 1, int(step))
    text = re.sub(steps, "", text)
    for first, last in re.findall(r"(\d+)(?: to (\d+))?", text):
        yield from range(int(first), int(last or first) + 1)
    assert re.fullmatch(rf"(?:{unit}s?|and|,|\s)*", re.sub(r"\d+(?: to \d+)?", "", text)), text


def heard_date(text: str) -> tuple[Values, frozenset[int], Values, bool]:
    """Days, months, weekdays, and whether days and weekdays must both match."""
    months, days, weekdays = frozenset(range(1, 13)), EVERY_DAY, EVERY_WEEKDAY
    if match := re.fullmatch(r"(?:in (.+), )?on (.+) of the month or on (.+)", text):
        months = heard_names(match[1], MONTHS, 1) if match[1] else months
        return heard_days(match[2]), months, heard_weekdays(match[3]), False
    text, _, only = text.partition(", only if that day is ")
    if match := re.fullmatch(r"on ((?:days? |every |the last day|the last weekday \().*) of (.+)", text):
        months = months if match[2] == "every month" else heard_names(match[2], MONTHS, 1)
        days = heard_days(match[1])
        weekdays = heard_weekdays(only) if only else weekdays
    elif match := re.fullmatch(r"(?:on (.+?))? ?(?:in (.+))?", text):
        weekdays = heard_weekdays(match[1]) if match[1] else weekdays
        months = heard_names(match[2], MONTHS, 1) if match[2] else months
    return days, months, weekdays, True


def heard_days(text: str) -> Values:
    found: set[int | str] = set()
    for name, words in (("LW", "the last weekday (Monday to Friday)"), ("L", "the last day")):
        if words in text:
            found.add(name)
            text = text.replace(words, "")
    return frozenset(found | set(heard_numbers(text, "day")))


def heard_weekdays(text: str) -> Values:
    special = r"the (last|\d)(?:st|nd|rd|th)? (\w+day) of the month"
    found: set[int | str] = {
        f"{WEEKDAYS.index(day)}{'L' if nth == 'last' else f'#{nth}'}" for nth, day in re.findall(special, text)
    }
    return frozenset(found | heard_names(re.sub(special, "", text), WEEKDAYS, 0))


def heard_names(text: str, names: list[str], low: int) -> frozenset[int]:
    found: set[int] = set()
    either = "|".join(names)
    for first, last in re.findall(rf"({either})(?: to ({either}))?", text):
        begin, end = names.index(first), names.index(last or first)
        end += 7 if end < begin else 0
        found |= {low + value % len(names) for value in range(begin, end + 1)}
    assert re.fullmatch(r"(?:and|or|,|\s)*", re.sub(rf"(?:{either})(?: to (?:{either}))?", "", text)), text
    return frozenset(found)
