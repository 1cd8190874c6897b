"""A cron schedule in words. Every field that restricts the schedule is said, so the words never promise more."""

from collections.abc import Sequence
from itertools import product

from pitboss.model.cron_fields import Fields, Term, Terms, starred, unrestricted, values

_MONTHS = (
    "", "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
_WEEKDAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_LAST_DAYS = {"L": "the last day", "LW": "the last weekday (Monday to Friday)"}
_FEW_TIMES = 4
_FEW_VALUES = 12


def words(fields: Fields) -> str:
    """Such as "every 15 minutes" or "at 06:30 on Monday to Friday"."""
    time, date = _time(fields), _date(fields)
    if unrestricted(fields.day) and unrestricted(fields.weekday) and not unrestricted(fields.hour):
        time = f"every day {time}" if time.startswith("at ") else f"{time} every day"
    return f"{time} {date}" if date else time


def needs_zone(fields: Fields) -> bool:
    """The words mean another time in another zone."""
    whole = values(fields.second) == [0]
    anywhere = unrestricted(fields.minute) or (whole and _even(fields.minute))
    return not (anywhere and all(unrestricted(terms) for terms in fields[2:]))


def _time(fields: Fields) -> str:
    seconds, minutes, hours = values(fields.second), values(fields.minute), values(fields.hour)
    whole = seconds == [0]
    if len(seconds) * len(minutes) * len(hours) <= _FEW_TIMES:
        form = "{:02}:{:02}" if whole else "{:02}:{:02}:{:02}"
        return f"at {_joined([form.format(*time) for time in product(hours, minutes, seconds)])}"
    if whole and len(fields.hour) == 1 and not unrestricted(fields.hour):
        span = f"from {hours[0]:02}:{minutes[0]:02} to {hours[-1]:02}:{minutes[-1]:02}"
        if len(minutes) == 1:
            return f"{_every('hour', fields.hour)} {span}"
        if fields.hour[0].step == 1 and _even(fields.minute):
            return f"{_every('minute', fields.minute)} {span}"
    return _levels([("second", fields.second), ("minute", fields.minute), ("hour", fields.hour)][whole:])


def _levels(levels: list[tuple[str, Terms]]) -> str:
    """From the finest: "every 10 seconds of minutes 0 to 5 of every hour"."""
    (name, terms), *rest = levels
    said = _even(terms)
    text = _every(name, terms) if said else f"at {_numbers(name, terms)}"
    for name, terms in rest:
        if not unrestricted(terms):
            text += f" of {_numbers(name, terms)}"
        elif not said:
            text += f" of every {name}"
        said = unrestricted(terms)
    return text


def _date(fields: Fields) -> str:
    day, month, weekday = fields.day, fields.month, fields.weekday
    months = _joined([_range(term, _MONTHS) for term in _spread(month)])
    within = "" if unrestricted(month) else f"in {months}"
    if unrestricted(day):
        return " ".join(filter(None, ["" if unrestricted(weekday) else f"on {_joined(_weekdays(weekday))}", within]))
    days = _numbers("day", day)
    of = months if within else "every month"
    if unrestricted(weekday):
        return f"on {days} of {of}"
    if starred(day) or starred(weekday):
        return f"on {days} of {of}, only if that day is {_joined(_weekdays(weekday), 'or')}"
    return f"{within and f'{within}, '}on {days} of the month or on {_joined(_weekdays(weekday))}"


def _even(terms: Terms) -> bool:
    """The values of seconds or minutes are equally far apart, also from one minute or hour to the next."""
    return len(terms) == 1 and terms[0].star and 60 % terms[0].step == 0


def _every(name: str, terms: Terms) -> str:
    return f"every {terms[0].step} {name}s" if terms[0].step > 1 else f"every {name}"


def _numbers(name: str, terms: Terms) -> str:
    """ "minute 5", "minutes 5 and 10 to 20", "every 2nd minute from 1 to 59"."""
    spread = _spread(terms)
    plain = [_range(term) for term in spread if term.step == 1]
    noun = name if len(plain) == 1 and plain[0].isdigit() else f"{name}s"
    steps = [term for term in spread if term.step > 1]
    parts = [f"every {_ordinal(term.step)} {name} from {term.first} to {term.values[-1]}" for term in steps]
    parts += [f"{noun} {_joined(plain)}"] if plain else []
    return _joined([*parts, *(_LAST_DAYS[term.special] for term in terms if term.special)])


def _weekdays(terms: Terms) -> list[str]:
    return [_range(term, _WEEKDAYS) for term in _spread(terms)] + [_nth(term) for term in terms if term.special]


def _nth(term: Term) -> str:
    _, _, number = term.special.partition("#")
    return f"the {_ordinal(int(number)) if number else 'last'} {_WEEKDAYS[term.first]} of the month"


def _spread(terms: Terms) -> list[Term]:
    """The terms with numbers in rising order; a step with few values becomes these."""
    plain = {term for term in terms if not term.special}
    short = {term for term in plain if term.step > 1 and len(term.values) <= _FEW_VALUES}
    return sorted((plain - short) | {Term(value, value) for term in short for value in term.values})


def _range(term: Term, names: Sequence[str] = ()) -> str:
    first, last = (names[term.first], names[term.last]) if names else (f"{term.first}", f"{term.last}")
    return f"{first} to {last}" if term.last > term.first else first


def _joined(parts: Sequence[str], conjunction: str = "and") -> str:
    return f" {conjunction} ".join(filter(None, [", ".join(parts[:-1]), *parts[-1:]]))


def _ordinal(number: int) -> str:
    ending = "th" if number // 10 == 1 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
