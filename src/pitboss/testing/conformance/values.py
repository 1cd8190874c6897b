"""Values: every value comes back as it was stored, to the byte."""

import pytest

from pitboss.model.canonical import MAX_BYTES, to_json
from pitboss.model.filter import by
from pitboss.model.outcome import Completed, Failed, Snooze
from pitboss.model.task import TaskError
from pitboss.testing.conformance.bench import Bench

_NESTED: object = 0
for _ in range(60):
    _NESTED = [_NESTED]
DOCUMENTS: dict[str, object] = {
    "nothing": {},
    "null": None,
    "empty text": "",
    "empty key": {"": ""},
    "letters": {"ä": "Ωж漢字", "emoji": "👩‍🚀🇪🇺", "rtl": "שלום", "combining": "e\u0301 é"},
    "escapes": 'quote " backslash \\ slash / tab \t newline \n return \r bell \x07 del \x7f line \u2028 \u2029',
    "sql": "'; DROP TABLE tasks; -- %s ? $1 :name {0} %(x)s",
    "integers": [0, -1, 2**31, 2**53 + 1, 2**63 - 1, -(2**63), 2**64 - 1],
    "floats": [0.1, -0.0, 1.0, 1e22, 1e-7, 1.7976931348623157e308, 5e-324, 123456789.123456789],
    "truths": [True, False, None],
    "alike keys": {"a": 1, "A": 2, "a ": 3, "aa": 4},
    "odd keys": {"a.b": 1, "$": 2, "[0]": 3, '"': 4, "'": 5, "*": 6, "\\": 7, "\n": 8},
    "white space": "  two  spaces\u00a0and\u3000more  ",
    "non-characters": "\ufffe\uffff\U0010ffff\ufeff",
    "looks like JSON": '{"a":1}',
    "nested": _NESTED,
}


class Values:
    @pytest.mark.parametrize("name", DOCUMENTS)
    async def test_params_and_results_come_back_to_the_byte(self, bench: Bench, name: str) -> None:
        text = to_json(DOCUMENTS[name])
        claim = await bench.started(params=text)
        assert claim.params == text
        await bench.report(claim, Completed(text))
        task = await bench.task(claim.id)
        assert (task.params, task.result) == (text, text)
        assert to_json(task.value()) == text

    async def test_the_largest_params_are_kept(self, bench: Bench) -> None:
        text = to_json("é" * (MAX_BYTES // 2 - 1))
        assert len(text.encode()) == MAX_BYTES
        claim = await bench.started(params=text)
        assert claim.params == text
        await bench.report(claim, Completed(text))
        assert (await bench.task(claim.id)).result == text

    async def test_a_canonical_null_is_a_result_and_no_result_is_none(self, bench: Bench) -> None:
        with_null, without = await bench.started(), await bench.started()
        await bench.report(with_null, Completed("null"))
        await bench.report(without, Completed(None))
        assert (await bench.task(with_null.id)).result == "null"
        assert (await bench.task(without.id)).result is None

    async def test_errors_are_kept_in_every_field(self, bench: Bench) -> None:
        error = TaskError(
            category="Netz'\"\\",
            message="line 1\nline 2\t👾",
            type="my.pkg:Error",
            traceback='  File "x.py", line 1\n' * 500,
            fingerprint="ffffffffffff",
            retryable=False,
        )
        claim = await bench.started()
        await bench.report(claim, Failed(error))
        assert (await bench.task(claim.id)).error == error
        assert [run.error for run in await bench.history(claim)] == [error]

    @pytest.mark.parametrize("text", ["ünïcödé", "quotes ' \" \\", "two\nlines", " "])
    async def test_texts_of_people_are_kept(self, bench: Bench, text: str) -> None:
        claim = await bench.started(tags=("x",))
        await bench.progress(claim, 1, text)
        await bench.report(claim, Snooze(1_000, text), worker=text)
        task = await bench.task(claim.id)
        assert (task.note, task.reason, task.worker) == (text, text, text)
        await bench.cancel(claim.id, reason=text)
        assert (await bench.task(claim.id)).reason == text
        queue = await bench.change("default", paused=True, by=text)
        assert queue.paused_by == text

    async def test_an_empty_note_is_not_no_note(self, bench: Bench) -> None:
        claim = await bench.started()
        await bench.progress(claim, 0, "")
        task = await bench.task(claim.id)
        assert (task.progress, task.note) == (0, "")

    @pytest.mark.parametrize("priority", [-(2**31), -1, 0, 2**31 - 1])
    async def test_extreme_priorities_are_kept(self, bench: Bench, priority: int) -> None:
        claim = await bench.started(priority=priority)
        assert claim.priority == priority

    async def test_extreme_priorities_are_ordered_as_numbers(self, bench: Bench) -> None:
        ranks = [2**31 - 1, -(2**31), 10, 9, -10, -9, 0]
        for rank in ranks:
            await bench.add(priority=rank)
        assert [claim.priority for claim in await bench.claim(9)] == sorted(ranks)

    async def test_moments_are_kept_to_the_microsecond(self, bench: Bench) -> None:
        task = await bench.add(run_at=bench.now + 1_234_567, expires_at=bench.now + 9_876_543_210_123, timeout=1)
        assert task.run_at == bench.now + 1_234_567
        assert task.expires_at == bench.now + 9_876_543_210_123
        assert task.timeout == 1

    async def test_tags_keep_their_order_and_number(self, bench: Bench) -> None:
        tags = tuple(f"t{number}" for number in range(30, 0, -1))
        task = await bench.add(tags=tags)
        assert task.tags == tags
        assert (await bench.take()).tags == tags

    async def test_names_that_differ_in_case_differ(self, bench: Bench) -> None:
        await bench.register("Job")
        await bench.put(bench.new(queue="Q", handler="Job"), bench.new(queue="q"))
        assert [claim.handler for claim in await bench.claim(5, "Q")] == ["Job"]
        assert (await bench.store.count(by(task="job"))).number == 1
        assert [queue.name for queue in await bench.store.queues()] == ["Q", "q"]
