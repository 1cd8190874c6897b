"""`pitboss figures`: charts that fit the terminal, with gaps that are seen, and one document for programs."""

import pytest

from pitboss.cli.errors import Exit
from pitboss.cli.figures import chart
from pitboss.engines.capabilities import figures_of
from pitboss.engines.protocol import Store
from pitboss.model.duration import SECOND
from pitboss.model.figures import RAW, HandlerFigures, Sample, bucket
from tests.cli.command_line import new, pitboss, put, run_all, with_store


def fill(*covered: int) -> None:
    """Samples of the buckets that ended ten seconds ago, that many times."""

    async def work(store: Store) -> None:
        figures = HandlerFigures("default", "greet", 5)
        figures.wait.add(2 * SECOND)
        at = bucket(store.clock.now() - 3 * SECOND, RAW)
        await figures_of(store).add_samples(
            [Sample(at=at - ago * RAW, session=1, covered=10, handlers=[figures]) for ago in covered]
        )

    with_store(work)


def test_a_chart_is_scaled_to_its_largest_value() -> None:
    assert list(chart((0, 1, 2, 4), (1, 1, 1, 1), 2)) == ["   █", " ▄██"]


def test_a_small_value_is_visible() -> None:
    assert list(chart((1, 1000), (1, 1), 1)) == ["▁█"]


def test_a_gap_is_a_dot_and_a_value_in_it_is_shown() -> None:
    assert list(chart((None, 0, 3, None), (0, 0, 0, 1), 1)) == ["· █ "]


def test_the_chart_shows_throughput_waits_and_gaps() -> None:
    put(*(new() for _ in range(5)))
    run_all()
    fill(1, 2, 5, 6)
    answer = pitboss("figures", "default", "--since", "2m", "--step", "10s")
    assert answer.code == 0
    assert "Queue default, one column for 10s" in answer.out
    for title in ("in:", "out:", "failed:", "wait p95:", "run p95:"):
        assert title in answer.out
    assert "wait p95: now 1.9s" in answer.out
    assert answer.out.count("no manager ran from") == 1
    assert "\x1b" not in answer.out


@pytest.mark.parametrize("width", [20, 40, 80])
def test_it_fits_a_narrow_terminal(width: int) -> None:
    put(new())
    fill(1)
    answer = pitboss("figures", "--since", "2h", env={"COLUMNS": str(width)})
    bars = [line for line in answer.out.splitlines() if set(line) <= set(" ▁▂▃▄▅▆▇█·")]
    assert bars
    assert all(len(line) <= width for line in bars)


def test_the_document_has_every_series() -> None:
    put(*(new() for _ in range(5)))
    fill(1)
    document = pitboss("figures", "--since", "1m", "--step", "10s", "--json").json()
    assert (document["version"], document["step"]) == (1, 10)
    assert set(document["series"]) >= {"in", "out", "failed", "started", "wait_p50", "wait_p95", "run_p50", "run_p95"}
    assert {len(values) for values in document["series"].values()} == {len(document["at"])}
    assert document["series"]["started"][0] is None


def test_unknown_names_and_times_are_refused() -> None:
    put(new())
    assert "there is no queue" in pitboss("figures", "nope").err
    assert pitboss("figures", "--pool", "nope").code == Exit.NOT_FOUND
    assert pitboss("figures", "--since", "1s").code == Exit.USAGE


def test_it_says_what_it_did_not_read() -> None:
    put(new())

    async def work(store: Store) -> None:
        at = bucket(store.clock.now() - 3 * SECOND, RAW)
        await figures_of(store).add_samples(
            [Sample(at=at - ago * RAW, session=one, covered=10) for ago in range(1, 10) for one in range(1, 2600)]
        )

    with_store(work)
    for command in ("figures", "health"):
        assert "there are more samples of managers than are read at once" in pitboss(command, "--since", "10m").out
    document = pitboss("figures", "--since", "2m", "--step", "10s", "--json").json()
    known = document["at"].index(document["measured_since"])
    assert document["series"]["covered"][:known] == [None] * known
    assert document["series"]["covered"][known] == 1
