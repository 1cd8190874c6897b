"""Which listings are wanted: businesses of the target's trade and state that can be reached."""

from collections.abc import Mapping
from typing import Any, NamedTuple

# What the scraper looks for, by its name in the directory, and words of which a listing's categories have one.
CATEGORIES: dict[str, tuple[str, ...]] = {
    "pressure-washing": ("pressure wash", "power wash"),
    "window-cleaning": ("window clean", "window wash"),
    "gutter-cleaning": ("gutter",),
    "roof-cleaning": ("roof clean", "moss removal"),
    "house-washing": ("house wash", "soft wash"),
    "deck-staining": ("deck stain", "deck refinish"),
    "deck-cleaning": ("deck clean",),
    "fence-staining": ("fence stain", "fence refinish"),
    "log-home-restoration": ("log home", "log cabin"),
    "concrete-cleaning": ("concrete clean", "driveway"),
    "paver-sealing": ("paver", "sealing"),
    "graffiti-removal": ("graffiti",),
    "solar-panel-cleaning": ("solar panel clean",),
    "awning-cleaning": ("awning",),
}
# They share words with the trades, and do other work.
_OTHER_WORK = ("equipment", "supplies", "rental", "school", "employment")


class Target(NamedTuple):
    """A search of the directory: a trade in a city."""

    state_id: str
    city: str
    category: str

    @property
    def key(self) -> str:
        return f"{self.state_id}/{self.city}/{self.category}"

    def __str__(self) -> str:
        return f"{self.category} in {self.city}, {self.state_id}"


class Listing(NamedTuple):
    """A business as the directory shows it."""

    id: str
    name: str
    state_id: str
    city: str
    categories: tuple[str, ...]
    phone: str = ""
    website: str = ""
    sponsored: bool = False
    closed: bool = False

    @classmethod
    def read(cls, shown: Mapping[str, Any]) -> "Listing":
        """A listing from what the page says about it; unknown fields are left out, as directories add some."""
        known = {name: value for name, value in shown.items() if name in cls._fields}
        return cls(**{**known, "categories": tuple(known.get("categories", ()))})


class Verdict(NamedTuple):
    """Whether a listing is accepted, and if not, why."""

    accepted: bool
    reason: str = ""


class YPFilter:
    """Accepts or rejects listings. The first rule that applies gives the reason."""

    def check(self, listing: Listing, target: Target) -> Verdict:
        reason = self._reason(listing, target)
        return Verdict(accepted=not reason, reason=reason)

    def _reason(self, listing: Listing, target: Target) -> str:
        rules = {
            "sponsored": listing.sponsored,
            "closed": listing.closed,
            "no name": not listing.name.strip(),
            "no phone and no website": not (listing.phone or listing.website),
            "in another state": listing.state_id.upper() != target.state_id,
            "other work": _has_any(listing, _OTHER_WORK),
            "another trade": not _has_any(listing, CATEGORIES[target.category]),
        }
        return next((reason for reason, applies in rules.items() if applies), "")


def _has_any(listing: Listing, words: tuple[str, ...]) -> bool:
    return any(word in category.lower() for category in listing.categories for word in words)
