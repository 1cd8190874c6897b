"""Quantiles of a stream of whole numbers, such as how long a handler takes, in a few hundred counters at most."""

from bisect import bisect_left

import msgspec

ERROR = 0.05
HALF_LIFE = 200
_BASE = (1 + ERROR) / (1 - ERROR)
_GROWTH: float = 2.0 ** (1 / HALF_LIFE)
_LARGEST = 2**53
# The largest whole number of each bucket.
BOUNDS = tuple(int(_BASE**place) for place in range(400))
_HEAVIEST = 2.0**20
_FORGOTTEN = 2.0**-10


def place_of(value: int) -> int:
    """The bucket of a value. Their bounds grow by a tenth; values below 1 count as 1."""
    return bisect_left(BOUNDS, min(_LARGEST, value))


def value_at(place: int) -> int:
    """The value that stands for a bucket: within 5 % of all that it holds."""
    return round(2 * _BASE**place / (_BASE + 1))


class Quantiles(msgspec.Struct):
    """Counts by size, in buckets whose bounds grow by a tenth: each value is known to 5 %, values below 1 count as 1.

    Each new value weighs a little more than the one before, so that a value counts half after `HALF_LIFE` more: old
    values fade with the number of tasks, not with time. `weight` is that of the next value; `total` and `mass` are the
    sums of the weights, and of the weighted values.
    """

    buckets: dict[int, float] = {}
    weight: float = 1.0
    total: float = 0.0
    mass: float = 0.0

    def add(self, value: int) -> None:
        value = min(max(value, 1), _LARGEST)
        place = place_of(value)
        self.buckets[place] = self.buckets.get(place, 0.0) + self.weight
        self.total += self.weight
        self.mass += self.weight * value
        self.weight *= _GROWTH
        if self.weight > _HEAVIEST:
            self._lighten()

    def merge(self, other: "Quantiles") -> None:
        """Add values that another process counted at the same time."""
        factor = self.weight / other.weight
        for place, held in other.buckets.items():
            self.buckets[place] = self.buckets.get(place, 0.0) + held * factor
        self.total += other.total * factor
        self.mass += other.mass * factor

    def quantile(self, share: float) -> int | None:
        """The value that this share of the values does not exceed; None if there are no values."""
        if not self.buckets:
            return None
        left, place = share * self.total, 0
        for place in sorted(self.buckets):
            left -= self.buckets[place]
            if left <= 0:
                break
        return value_at(place)

    @property
    def mean(self) -> int | None:
        return round(self.mass / self.total) if self.total else None

    @property
    def heard(self) -> float:
        """How many values of full weight are counted: 289 at most, for a stream that was not merged."""
        return self.total / self.weight * _GROWTH

    def _lighten(self) -> None:
        """Weights grow without end: divide them before they are too large, and drop buckets that no longer count."""
        least, weight = _FORGOTTEN * self.weight, self.weight
        self.buckets = {place: held / weight for place, held in self.buckets.items() if held >= least}
        self.total = sum(self.buckets.values())
        self.mass, self.weight = self.mass / weight, 1.0
