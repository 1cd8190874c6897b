"""Async tests: each in a loop of its own, within its time, leaving nothing behind."""

import asyncio
from typing import Any, Self

import pytest

from pitboss.testing.plugin import InLoop, run_test

pytest_plugins = ["pytester"]


class Recorder(InLoop):
    def __init__(self) -> None:
        self.seen: list[str] = []
        self.loop: Any = None

    async def __aenter__(self) -> Self:
        self.seen.append("entered")
        self.loop = asyncio.get_running_loop()
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.seen.append("left")


def test_an_argument_is_entered_and_left_in_the_test_s_loop() -> None:
    recorder = Recorder()

    async def test(recorder: Recorder, plain: int) -> None:
        assert recorder.loop is asyncio.get_running_loop()
        recorder.seen.append(f"ran {plain}")

    run_test(test, {"recorder": recorder, "plain": 1})
    assert recorder.seen == ["entered", "ran 1", "left"]


def test_an_argument_is_left_even_if_the_test_fails() -> None:
    recorder = Recorder()

    async def test(recorder: Recorder) -> None:
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        run_test(test, {"recorder": recorder})
    assert recorder.seen == ["entered", "left"]


def test_a_test_that_takes_too_long_fails() -> None:
    async def test() -> None:
        await asyncio.Event().wait()

    with pytest.raises(pytest.fail.Exception, match=r"longer than 0\.01 seconds"):
        run_test(test, {}, 0.01)


def test_a_time_out_of_the_test_s_own_is_its_own() -> None:
    async def test() -> None:
        async with asyncio.timeout(0):
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        run_test(test, {})


def test_a_task_left_behind_fails_the_test_by_name() -> None:
    async def test() -> None:
        test.kept = asyncio.create_task(asyncio.sleep(60), name="forgotten")  # type: ignore[attr-defined]

    with pytest.raises(pytest.fail.Exception, match="forgotten"):
        run_test(test, {})


def test_a_task_that_was_cancelled_on_the_way_out_is_not_left_behind() -> None:
    async def test() -> None:
        asyncio.create_task(asyncio.sleep(60)).cancel()

    run_test(test, {})


def test_only_tests_that_ask_for_it_are_run_so(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import asyncio
        import pytest

        @pytest.mark.fresh_loop(limit=5)
        async def test_marked():
            await asyncio.sleep(0)

        @pytest.mark.fresh_loop
        async def test_false():
            assert False

        async def test_unmarked():
            pass

        def test_plain():
            pass
        """
    )
    result = pytester.runpytest_inprocess("-p", "no:hypothesispytest", "-p", "no:xdist", "-p", "no:cacheprovider")
    outcomes = result.parseoutcomes()
    assert (outcomes["passed"], outcomes["failed"]) == (2, 2)
    result.stdout.fnmatch_lines(["*async def functions are not natively supported*"])


def test_a_setting_asks_for_all(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nfresh_loop = true\n")
    pytester.makepyfile("async def test_unmarked(): pass")
    pytester.runpytest_inprocess("-p", "no:hypothesispytest", "-p", "no:xdist").assert_outcomes(passed=1)
