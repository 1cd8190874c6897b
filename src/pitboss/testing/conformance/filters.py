"""Filters: every engine finds exactly the tasks that `pitboss.model.matching` says match."""

import pytest

from pitboss.model.filter import EVERYTHING, Filter, Term, by, parsed
from pitboss.model.matching import matches
from pitboss.model.outcome import Completed, Failed, Released
from pitboss.model.task import Task, TaskError, Unique
from pitboss.testing.conformance.bench import Bench

ODD = TaskError(
    category="a_b", message="50% of [x] failed: C:\\dir *now*", type="pkg.Odd_Error", fingerprint="00ff00ff00ff"
)
TEXTS = [
    "state:pending",
    "state:completed,failed",
    "-state:pending",
    "state:*ed",
    "-state:*ed",
    "queue:default",
    "queue:q_1",
    "queue:q*",
    "queue:q_*",
    "queue:Q*",
    "queue:*",
    "-queue:q*,default",
    "queue:nowhere",
    "task:job",
    "task:j?b",
    "task:[j]ob",
    "task:*b",
    "task:*.*",
    "task:mail.send",
    "tag:eu",
    "tag:e*",
    "tag:*",
    "-tag:*",
    "-tag:eu",
    "tag:eu -tag:big",
    "tag:EU",
    "tag:eu,us",
    "worker:w1",
    "worker:w*",
    "-worker:w1",
    "error:pkg.Odd_Error",
    "error:a_b",
    "error:a*",
    "error:axb",
    "error:*Odd%",
    "-error:*",
    "fingerprint:00ff00ff00ff",
    "fingerprint:00ff*",
    "reason:handler",
    'reason:"attempts used up"',
    "reason:*up",
    "-reason:*",
    "key:k%1",
    "key:k%*",
    "key:kx1",
    "key:k*1",
    "-key:*",
    "attempts:1",
    "attempts:0,1",
    "-attempts:0",
    "attempts:>0",
    "attempts:>=1 attempts:<2",
    "priority:-5",
    "priority:-5,3",
    "priority:<0",
    "priority:<=-5",
    "-priority:>-5",
    "priority:007",
    "priority:>99999999999",
    "progress:40",
    "progress:>10",
    "-progress:>10",
    "progress:<=40",
    "losses:1",
    "losses:>0",
    "age:>1h",
    "age:<1h",
    "age:>=0s",
    "-age:>1h",
    "wait:>1s",
    "wait:<1s",
    "-wait:>1s",
    "wait:>=0s",
    "-age:<=1h",
    "age:>1h age:<3h",
    "ran:>1s",
    "ran:<=10us",
    "-ran:>10us",
    "ran:>=0s",
    "finished:<1h",
    "finished:>=0s",
    "-finished:>1s",
    "finished:>1s finished:<1h",
    "state:completed finished:<1h",
    "state:failed,cancelled finished:<1h queue:end",
    "-state:completed finished:>=0s -error:*",
    "order:k",
    "order:k,l",
    "-order:*",
    "order:k state:held,pending,scheduled,running",
    "order:k state:pending",
    "order:k state:held reason:order",
    "order:k -reason:order state:held,pending",
    "args.n:1",
    "args.n:1.5",
    "args.n:true",
    "args.n:null",
    'args.n:"1"',
    "args.n:1,2,x",
    "-args.n:1",
    "args.shop.id:7",
    "args.shop:7",
    "args.n.x:1",
    "args.list:1",
    "args.$:dollar",
    "args.[0]:bracket",
    "args.a'b:quote",
    "args.%:percent",
    "args.über:straße",
    "args.*:star",
    "args.text:a*",
    "args.missing:x",
    "-args.missing:x",
    "straße",
    "STRASSE",
    "50%",
    "5_%",
    "[x]",
    "*now*",
    '"C:\\\\dir"',
    '"of [x]"',
    "mail.send",
    "-handler",
    '-"failed: C"',
    "up",
    r'"n\":1"',
    "state:failed queue:default attempts:>0 error:a_b failed",
    "state:failed fingerprint:00ff00ff00ff",
    "state:failed fingerprint:00ff* task:job",
    "state:failed -fingerprint:00ff*",
    "state:held reason:handler",
    "state:held reason:handler task:*range*",
    "state:held reason:handler -task:stranger",
    "state:pending priority:3,-5",
    "state:pending priority:>0",
    "state:pending queue:q* priority:3",
    "state:pending,failed queue:end,odd",
    "-state:completed,pending -queue:default",
    "task:job state:pending,completed",
    "task:job,mail.send -state:pending",
    "task:stranger",
    "worker:w1 queue:end age:<1h",
    "-state:held -state:running -state:completed",
]


async def _mixture(bench: Bench) -> None:
    """One task of every kind that some term tells from the others."""
    await bench.register("mail.send")
    await bench.put(
        bench.new(params='{"n":1}', priority=-5),
        bench.new(params='{"n":1.5}', queue="q_1", tags=("eu", "big"), priority=3),
        bench.new(params='{"n":"1"}', queue="qx1", tags=("us",), unique=Unique("k%1")),
        bench.new(params='{"n":true}', queue="Q", tags=("eux",), unique=Unique("kx1"), priority=7),
        bench.new(params='{"n":null}', handler="mail.send"),
        bench.new(params='{"list":[1],"shop":{"id":7}}', handler="stranger"),
        bench.new(params='{"n":2,"shop":7,"text":"abc"}', delay=60_000_000),
        bench.new(params='{"$":"dollar","%":"percent","*":"star","[0]":"bracket","a\'b":"quote"}', queue="odd"),
        bench.new(params='{"text":"a*","über":"straße"}', queue="odd"),
        bench.new(order_key="k", queue="odd"),
        bench.new(order_key="k", queue="odd"),
        bench.new(order_key="l"),
    )
    bench.clock.advance("2h")
    bench.me = await bench.session("job", "mail.send")
    await _ended(bench)
    await bench.put(bench.new(tags=("eu",)), bench.new(params="[]"), bench.new(params="7", delay=1))


async def _ended(bench: Bench) -> None:
    claim = await bench.started(queue="end", max_attempts=1)
    await bench.report(claim, Failed(ODD), worker="w1", ran=5)
    claim = await bench.started(queue="end")
    bench.clock.advance("2s")
    await bench.report(claim, Completed('"ok"'), worker="w_1")
    claim = await bench.started(queue="end", tags=("EU",))
    await bench.progress(claim, 40, "note")
    claim = await bench.started(queue="end")
    await bench.cancel(claim.id, reason="up to you")
    await bench.report(claim, Released())
    other = await bench.session("job")
    await bench.add(queue="lost")
    await bench.take("lost", session=other)
    await bench.end(other)
    await bench.reclaim()
    bench.clock.advance("1500ms")


class Filtering:
    async def test_every_term_finds_what_matching_says(self, bench: Bench) -> None:
        await _mixture(bench)
        tasks = await bench.every_task()
        told_apart = 0
        for text in TEXTS:
            found = await assert_found(bench, parsed(text), tasks, text)
            told_apart += 0 < found < len(tasks)
        assert told_apart > 100

    @pytest.mark.parametrize("field", ["id", "parent"])
    async def test_ids_are_found_whole_by_glob_and_not_at_all(self, bench: Bench, field: str) -> None:
        parent = await bench.add()
        for _ in range(3):
            await bench.add(parent=parent.id)
        tasks = await bench.every_task()
        for value in (parent.id, parent.id[:18] + "*", "*", "nonsense", parent.id[:-1], "*-7000-*", parent.id.upper()):
            for negated in (False, True):
                term = Term(field=field, values=(value,), negated=negated)
                await assert_found(bench, Filter((term,)), tasks, f"{field}:{value}")
        both = by(**{field: [parent.id, tasks[1].id, "nonsense"]})
        await assert_found(bench, both, tasks, f"{field}: several")

    @pytest.mark.parametrize(
        ("path", "value"),
        [
            (("a.b",), "1"),
            (("a", "b"), "2"),
            ((" ", ""), "x"),
            (('q"q',), "3"),
            (("back\\slash",), "4"),
            (("0",), "5"),
            (("list", "0"), "6"),
            (("{a}",), "7"),
            (("a b",), "8"),
            (("a,b",), "9"),
            (("#-1",), "10"),
            (("$.a",), "11"),
            (("big",), "18446744073709551615"),
            (("neg",), "-0.5"),
            (("text",), 'say "hi" \\ {x}'),
        ],
    )
    async def test_params_are_found_under_any_key(self, bench: Bench, path: tuple[str, ...], value: str) -> None:
        await bench.put(bench.new(params=_ODD_KEYS), bench.new(params='{"a":{"b":3}}'), bench.new(params='"2"'))
        tasks = await bench.every_task()
        found = await assert_found(bench, Filter((Term(field="args", path=path, values=(value,)),)), tasks, str(path))
        assert found == (0 if path == ("list", "0") else 1)

    @pytest.mark.parametrize("special", list("%_[]?\\^$.+(){}|'\"#-"))
    async def test_only_the_star_is_special_in_a_glob(self, bench: Bench, special: str) -> None:
        await bench.put(
            bench.new(unique=Unique(f"a{special}b")),
            bench.new(unique=Unique("axb")),
            bench.new(unique=Unique(f"a{special}{special}b")),
            bench.new(unique=Unique(f"A{special}B")),
        )
        tasks = await bench.every_task()
        for pattern in (f"a{special}b", f"*{special}b", f"a{special}*", f"*{special}*", "a*b", f"{special}"):
            term = Term(field="key", values=(pattern,))
            await assert_found(bench, Filter((term,)), tasks, pattern)

    async def test_text_is_found_as_it_is_written(self, bench: Bench) -> None:
        await bench.put(bench.new(params='{"t":"50%_off [a-z]*"}'), bench.new(params='{"t":"50 off"}'), bench.new())
        tasks = await bench.every_task()
        for text in ("50%_off", "50", "%", "_", "[a-z]*", "*", "OFF", '"t"', "jo", ""):
            await assert_found(bench, Filter((Term(field="text", values=(text,)),)), tasks, text)

    async def test_no_terms_find_everything(self, bench: Bench) -> None:
        await bench.put(bench.new(), bench.new())
        assert (await bench.store.count(EVERYTHING)).number == (await bench.store.count(parsed("  "))).number == 2

    async def test_fifty_terms_are_read(self, bench: Bench) -> None:
        task = await bench.add()
        wanted = parsed(" ".join(["queue:default", "-tag:x"] * 25))
        assert (await bench.store.find(wanted)).tasks == [task]

    async def test_a_thousand_values_are_read(self, bench: Bench) -> None:
        tasks = [await bench.add() for _ in range(3)]
        ids = [bench.ids() for _ in range(997)] + [task.id for task in tasks]
        assert (await bench.store.count(by(id=ids))).number == 3

    async def test_control_means_what_the_ledger_finds(self, bench: Bench) -> None:
        await bench.put(*(bench.new(params=f'{{"n":{n % 3}}}', tags=("ab"[n % 2],)) for n in range(9)))
        wanted = parsed("args.n:1 -tag:a")
        matching = {task.id for task in (await bench.store.find(wanted)).tasks}
        assert (await bench.cancel(wanted)).changed == len(matching) > 0
        assert {task.id for task in (await bench.store.find(parsed("state:cancelled"))).tasks} == matching


_ODD_KEYS = (
    '{" ":{"":"x"},"#-1":10,"$.a":11,"0":5,"a":{"b":2},"a b":8,"a,b":9,"a.b":1,"back\\\\slash":4,'
    '"big":18446744073709551615,"list":[6],"neg":-0.5,"q\\"q":3,"text":"say \\"hi\\" \\\\ {x}","{a}":7}'
)


async def assert_found(bench: Bench, wanted: Filter, tasks: list[Task], text: str) -> int:
    """The store finds and counts those of these tasks, all there are, that match; how many."""
    expected = [task.id for task in tasks if matches(wanted, task, bench.now)]
    page = await bench.store.find(wanted, limit=1000, oldest_first=True)
    assert [task.id for task in page.tasks] == expected, f"wrong tasks for {text}"
    assert (await bench.store.count(wanted)).number == len(expected), f"wrong count for {text}"
    return len(expected)
