"""Quantiles, compared with the exact ones of the same values."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pitboss.model.quantiles import ERROR, HALF_LIFE, Quantiles

values = st.lists(st.integers(1, 10**12), min_size=1, max_size=400)
shares = st.floats(0, 1)
DUST = 1e-6


def sketch(values: list[int]) -> Quantiles:
    made = Quantiles()
    for value in values:
        made.add(value)
    return made


def faded(values: list[int]) -> list[tuple[int, float]]:
    """Each value with its weight, by size; the newest weighs 1."""
    ages = range(len(values) - 1, -1, -1)
    return sorted((value, 0.5 ** (age / HALF_LIFE)) for value, age in zip(values, ages, strict=True))


def exact(weighted: list[tuple[int, float]], share: float) -> int:
    left = share * sum(weight for _, weight in weighted)
    for value, weight in weighted:
        left -= weight
        if left <= 0:
            return value
    return weighted[-1][0]


def close(found: int | None, weighted: list[tuple[int, float]], share: float) -> bool:
    """Within the error of the exact quantile; a rank that falls between two values may be rounded to either."""
    low, high = (exact(weighted, min(1, max(0, share + dust))) for dust in (-DUST, DUST))
    slack = ERROR + DUST
    return found is not None and low * (1 - slack) - 0.5 <= found <= high * (1 + slack) + 0.5


@given(values, shares)
def test_a_quantile_is_known_to_five_percent(values: list[int], share: float) -> None:
    assert close(sketch(values).quantile(share), faded(values), share)


@given(values)
def test_the_mean_is_that_of_the_faded_values(values: list[int]) -> None:
    weighted = faded(values)
    mean = sum(value * weight for value, weight in weighted) / sum(weight for _, weight in weighted)
    assert sketch(values).mean == pytest.approx(mean, rel=1e-6, abs=1)


@given(values, values, shares)
def test_merged_streams_are_one(mine: list[int], yours: list[int], share: float) -> None:
    merged = sketch(mine)
    merged.merge(sketch(yours))
    assert close(merged.quantile(share), sorted(faded(mine) + faded(yours)), share)
    other = sketch(yours)
    other.merge(sketch(mine))
    assert other.heard == pytest.approx(merged.heard)
    assert other.mean == pytest.approx(merged.mean, rel=1e-6, abs=1)


@given(values, st.lists(shares, min_size=2, max_size=5).map(sorted))
def test_a_larger_share_is_not_a_smaller_value(values: list[int], shares: list[float]) -> None:
    made = sketch(values)
    found = [made.quantile(share) or 0 for share in shares]
    assert found == sorted(found)


@given(values, shares)
def test_what_is_stored_and_read_again_is_the_same(values: list[int], share: float) -> None:
    made = sketch(values)
    read = msgspec.json.decode(msgspec.json.encode(made), type=Quantiles)
    assert read == made
    read.add(7)
    made.add(7)
    assert read.quantile(share) == made.quantile(share)


def test_nothing_is_known_of_nothing() -> None:
    made = Quantiles()
    assert made.quantile(0.5) is None
    assert made.mean is None
    made.merge(Quantiles())
    assert made.quantile(0.5) is None


@pytest.mark.parametrize("value", [-5, 0, 1])
def test_what_is_below_one_counts_as_one(value: int) -> None:
    assert sketch([value]).quantile(0.5) == 1


def test_old_behaviour_fades_with_newer_values() -> None:
    made = sketch([1_000_000] * 1000)
    for _ in range(HALF_LIFE):
        made.add(5_000_000)
    assert close(made.quantile(0.25), [(1_000_000, 1)], 0.5)
    assert close(made.quantile(0.75), [(5_000_000, 1)], 0.5)
    for _ in range(HALF_LIFE * 6):
        made.add(5_000_000)
    assert close(made.quantile(0.02), [(5_000_000, 1)], 0.5)


def test_a_long_stream_stays_small_exact_and_bounded_in_weight() -> None:
    """Weights are divided every four thousand values; that must not change the result."""
    stream = [1 + (n * n * 7919) % 10**9 for n in range(30_000)]
    made = Quantiles()
    for number, value in enumerate(stream, start=1):
        made.add(value)
        if number % 3500 == 0:
            recent = faded(stream[max(0, number - 20 * HALF_LIFE) : number])
            mean = sum(value * weight for value, weight in recent) / sum(weight for _, weight in recent)
            assert made.mean == pytest.approx(mean, rel=0.01)
            assert all(close(made.quantile(share), recent, share) for share in (0.05, 0.5, 0.9, 0.99))
    assert made.weight <= 2**20 + 1
    assert len(made.buckets) < 300
    assert 280 < made.heard < 290


def test_forgotten_buckets_are_dropped() -> None:
    made = sketch([10**n for n in range(1, 12)])
    for _ in range(HALF_LIFE * 25):
        made.add(3)
    assert len(made.buckets) == 1
