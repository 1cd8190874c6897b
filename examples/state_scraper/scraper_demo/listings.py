"""What the stand-in directory knows: the listings of each target, and which of them a scraper should accept."""

from collections.abc import Iterable
from random import Random
from typing import Any, NamedTuple

from scrape_yp.yp_filter import CATEGORIES, Target

PER_PAGE = 4
_MOST = 12
_SHARED = 0.3
# What is wrong with a listing -> how its fields differ. The first is right, and the most frequent.
_KINDS: dict[str, dict[str, Any]] = {
    "": {},
    "sponsored": {"sponsored": True},
    "closed": {"closed": True},
    "no phone and no website": {"phone": "", "website": ""},
    "in another state": {"state_id": "ZZ"},
    "other work": {"categories": ["Equipment Rental"]},
    "another trade": {"categories": ["Bakeries"]},
}
_RIGHT = 12


class Entry(NamedTuple):
    """A listing as the site shows it, and why a scraper should reject it ("": it should not)."""

    shown: dict[str, Any]
    reason: str


def directory(targets: Iterable[Target]) -> dict[str, list[Entry]]:
    """The listings by target, the same in each run. Some targets have none; some listings belong to two targets."""
    made: dict[str, list[Entry]] = {}
    last: tuple[Target, Entry] | None = None
    for target in sorted(targets):
        random = Random(target.key)
        made[target.key] = entries = [_entry(target, number, random) for number in range(random.randint(0, _MOST - 1))]
        if last is not None and last[0].city == target.city and random.random() < _SHARED:
            last[1].shown["categories"].append(_trade(target))
            entries.append(last[1])
        right = [entry for entry in entries if not entry.reason]
        last = (target, right[0]) if right else None
    return made


def _entry(target: Target, number: int, random: Random) -> Entry:
    (reason,) = random.choices(list(_KINDS), [_RIGHT] + [1] * (len(_KINDS) - 1))
    shown = {
        "id": f"{target.key}/{number}",
        "name": f"{target.city} {target.category.title()} {number}",
        "state_id": target.state_id,
        "city": target.city,
        "categories": [_trade(target)],
        "phone": f"555-{random.randint(0, 9999):04}",
        "website": "",
        "sponsored": False,
        "closed": False,
    }
    return Entry({**shown, **_KINDS[reason]}, reason)


def _trade(target: Target) -> str:
    return f"{CATEGORIES[target.category][0].title()} Services"
