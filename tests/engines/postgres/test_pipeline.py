"""Several statements in one round trip, on a real server: which rows go where, and what is left after a failure."""

import asyncio
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection
from psycopg.pq import TransactionStatus

from pitboss.engines.postgres.pipeline import Pipeline
from pitboss.engines.postgres.script import ALL, Again, Ask, Row, adapted

Said = Generator[Ask, list[Row], Any]
pytestmark = pytest.mark.fresh_loop(limit=30)


@asynccontextmanager
async def _pipeline(dsn: str, *, prepare: bool = True) -> AsyncIterator[Pipeline]:
    connection = await AsyncConnection.connect(dsn, autocommit=True, prepare_threshold=None)
    try:
        adapted(connection.adapters)
        await connection.execute("CREATE TABLE IF NOT EXISTS t (n bigint PRIMARY KEY, v text)")
        yield Pipeline(connection, prepare=prepare)
    finally:
        await connection.close()


def _number(n: int | None) -> Ask:
    return Ask("SELECT %(n)s::bigint", {"n": n})


def _insert(n: int) -> Ask:
    return Ask("INSERT INTO t (n) VALUES (%(n)s) RETURNING n", {"n": n})


async def _there(pipeline: Pipeline) -> list[int]:
    rows = await (await pipeline.connection.execute("SELECT n FROM t ORDER BY n")).fetchall()
    return [n for (n,) in rows]


async def _names(pipeline: Pipeline) -> list[str]:
    rows = await (
        await pipeline.connection.execute("SELECT name FROM pg_prepared_statements", prepare=False)
    ).fetchall()
    return [name for (name,) in rows if name.startswith("pitboss")]


@pytest.mark.parametrize("prepare", [True, False])
async def test_each_statement_gets_its_own_rows(postgres_dsn: str, prepare: bool) -> None:
    def script() -> Said:
        first: list[Row] = []
        second: list[Row] = []
        assert (yield _number(1).into(first)) == []
        assert first == [], "nothing was said yet"
        yield _number(2).unheard()
        yield _number(3).into(second)
        fourth = yield _number(4)
        return first, second, fourth

    async with _pipeline(postgres_dsn, prepare=prepare) as pipeline:
        for _ in range(3):
            assert await pipeline.transact(script()) == ([(1,)], [(3,)], [(4,)])
            assert pipeline.idle


async def test_a_statement_that_is_not_awaited_is_sent_with_the_commit(postgres_dsn: str) -> None:
    def script() -> Said:
        yield _insert(1).unheard()
        yield _insert(2).unheard()
        return "done"

    async with _pipeline(postgres_dsn) as pipeline:
        assert await pipeline.transact(script()) == "done"
        assert await _there(pipeline) == [1, 2]


async def test_without_a_transaction_it_is_sent_at_the_end_of_the_call(postgres_dsn: str) -> None:
    def script() -> Said:
        yield _insert(1).unheard()

    async with _pipeline(postgres_dsn) as pipeline:
        await pipeline.run(script())
        assert await _there(pipeline) == [1]


async def test_the_barrier_awaits_all_rows(postgres_dsn: str) -> None:
    def script() -> Said:
        rows: list[Row] = []
        yield ALL
        yield _number(1).into(rows)
        yield ALL
        return list(rows)

    async with _pipeline(postgres_dsn) as pipeline:
        assert await pipeline.transact(script()) == [(1,)]
        assert await pipeline.run(script()) == [(1,)]


@pytest.mark.parametrize("place", [0, 1, 2])
async def test_a_failure_anywhere_undoes_all_and_leaves_the_connection_usable(postgres_dsn: str, place: int) -> None:
    def script(divisor: int) -> Said:
        asks = [_insert(10), _insert(20)]
        asks.insert(place, Ask("SELECT 1 / %(n)s::bigint", {"n": divisor}))
        for ask in asks:
            yield ask.unheard()
        yield ALL

    async with _pipeline(postgres_dsn) as pipeline:
        for _ in range(2):
            with pytest.raises(psycopg.errors.DivisionByZero):
                await pipeline.transact(script(0))
            assert pipeline.idle
            assert await _there(pipeline) == []
        await pipeline.transact(script(1))
        assert await _there(pipeline) == [10, 20]


async def test_a_statement_that_cannot_be_prepared_is_not_noted_as_prepared(postgres_dsn: str) -> None:
    def script() -> Said:
        yield _number(1).unheard()
        yield Ask("SELECT n FROM missing WHERE n = %(n)s", {"n": 1}).unheard()
        yield Ask("SELECT n FROM t WHERE n = %(n)s", {"n": 1}).unheard()
        yield ALL

    async with _pipeline(postgres_dsn) as pipeline:
        for _ in range(2):
            with pytest.raises(psycopg.errors.UndefinedTable):
                await pipeline.transact(script())
        await pipeline.connection.execute("CREATE TABLE missing (n bigint)")
        await pipeline.transact(script())
        names = await _names(pipeline)
        assert len(set(names)) == len(names)
        await pipeline.transact(script())
        assert sorted(await _names(pipeline)) == sorted(names), "nothing is prepared twice"


async def test_a_value_that_cannot_be_sent_fails_before_anything_is_sent(postgres_dsn: str) -> None:
    def script(text: str) -> Said:
        yield _insert(1).unheard()
        yield Ask("SELECT %(text)s::text", {"text": text})

    async with _pipeline(postgres_dsn) as pipeline:
        for text, error in (("\ud800", UnicodeEncodeError), ("a\0b", psycopg.DataError)):
            with pytest.raises(error):
                await pipeline.transact(script(text))
            assert pipeline.idle
        assert await _there(pipeline) == []


async def test_a_script_that_must_run_again_is_undone(postgres_dsn: str) -> None:
    reached: list[str] = []

    def script() -> Said:
        yield _insert(1)
        yield _insert(2).unheard()
        return Again()

    async with _pipeline(postgres_dsn) as pipeline:
        answer = await pipeline.transact(script(), before_commit=lambda: reached.append("commit"))
        assert isinstance(answer, Again)
        assert pipeline.idle
        assert (await _there(pipeline), reached) == ([], [])


async def test_a_failure_before_the_commit_undoes_all(postgres_dsn: str) -> None:
    def script() -> Said:
        yield _insert(1)
        yield _insert(2).unheard()

    def refuse() -> None:
        raise KeyError("no")

    async with _pipeline(postgres_dsn) as pipeline:
        with pytest.raises(KeyError):
            await pipeline.transact(script(), before_commit=refuse)
        assert pipeline.idle
        assert await _there(pipeline) == []


async def test_a_deferred_constraint_fails_the_commit(postgres_dsn: str) -> None:
    def script() -> Said:
        yield Ask("INSERT INTO d (n) VALUES (%(n)s)", {"n": 1}).unheard()
        yield Ask("INSERT INTO d (n) VALUES (%(n)s)", {"n": 1}).unheard()

    async with _pipeline(postgres_dsn) as pipeline:
        await pipeline.connection.execute("CREATE TABLE d (n bigint UNIQUE DEFERRABLE INITIALLY DEFERRED)")
        with pytest.raises(psycopg.errors.UniqueViolation):
            await pipeline.transact(script())
        assert pipeline.idle


async def test_much_is_sent_both_ways_at_once(postgres_dsn: str) -> None:
    """Far more than the buffers hold: a client that only sends, or only reads, would wait for ever."""
    text = "x" * 3_000_000

    def script() -> Said:
        kept: list[list[Row]] = [[] for _ in range(4)]
        for rows in kept:
            yield Ask("SELECT %(text)s::text", {"text": text}).into(rows)
        yield ALL
        return [len(value) for rows in kept for (value,) in rows]

    async with _pipeline(postgres_dsn) as pipeline:
        assert await pipeline.run(script()) == [3_000_000] * 4


async def test_a_cancelled_call_leaves_a_connection_that_is_not_idle(postgres_dsn: str) -> None:
    def script() -> Said:
        yield Ask("SELECT pg_sleep(%(n)s::bigint)", {"n": 20})

    async with _pipeline(postgres_dsn) as pipeline:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await pipeline.transact(script())
        assert not pipeline.idle
        assert pipeline.connection.pgconn.transaction_status == TransactionStatus.ACTIVE


async def test_a_server_that_ends_the_connection_is_quoted(postgres_dsn: str) -> None:
    def script() -> Said:
        yield _insert(1)
        yield Ask("SELECT pg_terminate_backend(pg_backend_pid())", {})
        yield _insert(2)

    async with _pipeline(postgres_dsn) as pipeline:
        with pytest.raises(psycopg.OperationalError) as caught:
            await pipeline.transact(script())
        assert caught.value.sqlstate == "57P01"
        assert not pipeline.idle


async def test_numbers_and_their_absence_are_told_apart(postgres_dsn: str) -> None:
    def script(n: int | None) -> Said:
        return (yield _number(n))

    async with _pipeline(postgres_dsn) as pipeline:
        for n in (1, None, 2**62, None, -5):
            assert await pipeline.run(script(n)) == [(n,)]


async def test_places_without_names_and_percent_signs(postgres_dsn: str) -> None:
    def script() -> Said:
        return (yield Ask("SELECT %s::text || %s::text, 7 %% 4", ["a", "b"]))

    async with _pipeline(postgres_dsn) as pipeline:
        assert await pipeline.run(script()) == [("ab", 3)]
        assert await _names(pipeline) == [], "what is said once is not kept"


async def test_several_statements_in_one_text_are_sent_in_their_turn(postgres_dsn: str) -> None:
    def script(broken: str = "") -> Said:
        yield _insert(1).unheard()
        yield Ask(f"INSERT INTO t (n) VALUES (2); {broken} INSERT INTO t (n) VALUES (3)")
        return (yield _number(4))

    async with _pipeline(postgres_dsn) as pipeline:
        with pytest.raises(psycopg.errors.DivisionByZero):
            await pipeline.transact(script("SELECT 1 / 0;"))
        assert pipeline.idle
        assert await pipeline.transact(script()) == [(4,)]
        assert await _there(pipeline) == [1, 2, 3]


async def test_a_broken_connection_is_not_listened_to_while_work_goes_on(postgres_dsn: str) -> None:
    """Its file number may soon belong to another connection, whose reader must not be removed."""
    loop = asyncio.get_running_loop()
    steps: list[bool] = []

    async with _pipeline(postgres_dsn) as pipeline:
        file = pipeline.connection.fileno()

        def work() -> Iterator[None]:
            while not pipeline.connection.closed:
                yield
            for _ in range(3):
                yield
            steps.append(loop.remove_reader(file))

        def script() -> Said:
            yield Ask("SELECT pg_terminate_backend(pg_backend_pid())", {}, work())

        with pytest.raises(psycopg.OperationalError):
            await pipeline.run(script())
    assert steps == [False]


async def test_a_statement_that_is_too_long_closes_the_connection(
    postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def script() -> Said:
        return (yield _number(1))

    def refused(_: object) -> list[Any]:
        raise psycopg.OperationalError("too long")

    async with _pipeline(postgres_dsn) as pipeline:
        monkeypatch.setattr(pipeline, "_enqueue", refused)
        with pytest.raises(psycopg.OperationalError, match="too long"):
            await pipeline.transact(script())
        assert not pipeline.idle
