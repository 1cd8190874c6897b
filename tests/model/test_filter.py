"""The filter grammar: what is written is what is meant, and what cannot be read is refused."""

import fnmatch

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pitboss.model.errors import InvalidInput
from pitboss.model.filter import (
    EVERYTHING,
    MAX_TERMS,
    NUMBER_FIELDS,
    SPAN_FIELDS,
    TEXT_FIELDS,
    Filter,
    Term,
    by,
    parsed,
)
from pitboss.model.matching import matches, waited
from pitboss.model.states import State
from pitboss.model.task import Task, TaskError

NOW = 1_800_000_000_000_000
words = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=12)
keys = st.text(
    st.characters(exclude_categories=["Cs", "Zs", "Cc"], exclude_characters='\0:".\\ '), min_size=1, max_size=5
)
text_terms = st.builds(
    Term,
    field=st.sampled_from([field for field in TEXT_FIELDS if field != "state"]),
    values=st.lists(words, min_size=1, max_size=3).map(tuple),
    negated=st.booleans(),
)
terms = st.one_of(
    text_terms,
    st.builds(Term, field=st.just("text"), values=st.tuples(words), negated=st.booleans()),
    st.builds(Term, field=st.just("state"), values=st.lists(st.sampled_from(State), min_size=1).map(tuple)),
    st.builds(
        Term,
        field=st.just("args"),
        values=st.tuples(words),
        path=st.lists(keys, min_size=1, max_size=3).map(tuple),
        negated=st.booleans(),
    ),
    st.builds(
        Term,
        field=st.sampled_from(NUMBER_FIELDS),
        op=st.sampled_from(["<", "<=", ">", ">="]),
        number=st.integers(-(10**6), 10**6),
        negated=st.booleans(),
    ),
    st.builds(
        Term,
        field=st.sampled_from(SPAN_FIELDS),
        op=st.sampled_from(["<", "<=", ">", ">="]),
        number=st.integers(0, 10**12),
    ),
    st.builds(
        Term,
        field=st.sampled_from(NUMBER_FIELDS),
        values=st.lists(st.integers(-99, 99).map(str), min_size=1, max_size=3).map(tuple),
    ),
)


def quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def printed(term: Term) -> str:
    """A term as a careful person would write it."""
    minus = "-" if term.negated else ""
    if term.field == "text":
        return minus + quoted(term.values[0])
    path = "".join(f".{key}" for key in term.path)
    if term.op != "in":
        unit = "us" if term.field in SPAN_FIELDS else ""
        return f"{minus}{term.field}:{term.op}{term.number}{unit}"
    plain = term.field in NUMBER_FIELDS
    values = ",".join(value if plain else quoted(value) for value in term.values)
    return f"{minus}{term.field}{path}:{values}"


@given(st.lists(terms, max_size=5))
def test_what_is_written_is_read_as_it_was_meant(meant: list[Term]) -> None:
    assert parsed(" ".join(map(printed, meant))) == Filter(tuple(meant))


@given(st.text(max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        found = parsed(text)
    except InvalidInput:
        return
    assert isinstance(found, Filter)


@given(st.text(st.sampled_from("ab*%_?[]\\.\n"), max_size=8), st.text(st.sampled_from("ab%_?[]\\.\n"), max_size=8))
def test_only_the_star_is_a_wildcard(pattern: str, text: str) -> None:
    assume(pattern)
    escaped = "".join(f"[{char}]" if char in "?[" else char for char in pattern)
    task = Task(id="", handler=text, queue="", state=State.PENDING, params="{}")
    wanted = Filter((Term(field="task", values=(pattern,)),))
    assert matches(wanted, task, NOW) == fnmatch.fnmatchcase(text, escaped)


@pytest.mark.parametrize(
    "text",
    [
        "nofield:x",
        "state:nope",
        "state:",
        "-queue:",
        "args.x:",
        "args:5",
        "queue.path:x",
        '"open',
        'queue:"open',
        "age:5",
        "attempts:x",
        "attempts:>x",
        "age:>soon",
        "wait:1s",
        "attempts:1,x",
        "priority:*",
        "attempts:99999999999999999999",
        "losses:>99999999999999999999",
    ],
)
def test_what_cannot_be_read_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InvalidInput):
        parsed(text)


def test_too_many_terms_are_refused() -> None:
    assert len(parsed("a " * MAX_TERMS).terms) == MAX_TERMS
    with pytest.raises(InvalidInput, match="51 terms"):
        parsed("a " * (MAX_TERMS + 1))


def test_a_filter_made_in_code_is_checked_too() -> None:
    assert by(state="failed", queue=["a", "b"]) == parsed("state:failed queue:a,b")
    assert parsed("queue:a").also(state="failed") == parsed("queue:a state:failed")
    with pytest.raises(InvalidInput):
        by(nofield="x")


@pytest.mark.parametrize(
    ("text", "states"),
    [
        ("", set(State)),
        ("state:failed,pending", {State.FAILED, State.PENDING}),
        ("-state:failed", set(State) - {State.FAILED}),
        ("state:failed state:pending", set()),
        ("state:fail*", {State.FAILED}),
        ("-state:*ed", {State.HELD, State.PENDING, State.RUNNING}),
        ("queue:x", set(State)),
    ],
)
def test_the_states_that_can_match(text: str, states: set[State]) -> None:
    assert parsed(text).states() == states


def test_numbers_have_one_way_to_be_written() -> None:
    assert parsed("priority:007,-00") == parsed("priority:7,0")


TASK = Task(
    id="01900000-0000-7000-8000-000000000000",
    handler="mail.send",
    queue="post",
    state=State.FAILED,
    params='{"n":1,"shop":{"id":"7"}}',
    created_at=NOW - 10_000_000,
    run_at=NOW - 8_000_000,
    started_at=NOW - 5_000_000,
    attempts=3,
    tags=("eu", "big"),
    error=TaskError(category="net", message="refused by peer", type="ConnectionError"),
    reason="attempts used up",
    batch="nightly",
    resource="proxies/eu-1",
    partition="CA/Los Angeles",
)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "state:failed",
        "state:f*",
        "queue:a,post",
        "task:mail.*",
        "tag:eu tag:big",
        "-tag:us",
        "error:net",
        "error:*Error",
        "attempts:3",
        "attempts:>2",
        "-attempts:>3",
        "args.n:1",
        "args.shop.id:7",
        "-args.shop:7",
        "age:>=10s",
        "wait:>=3s wait:<=3s",
        "peer",
        '"used up"',
        "-absent",
        "reason:*up",
        "-worker:*",
        "-key:*",
        "-parent:*",
        "batch:nightly",
        "batch:other,night*",
        "resource:proxies/*",
        "resource:*/eu-1",
        "-resource:keys/*",
        "partition:CA/*",
        'partition:TX,"CA/Los Angeles"',
        "-partition:TX*",
    ],
)
def test_a_task_that_matches(text: str) -> None:
    assert matches(parsed(text), TASK, NOW)
    assert matches(EVERYTHING, TASK, NOW)


@pytest.mark.parametrize(
    "text",
    [
        "state:pending",
        "-state:failed",
        "queue:pos",
        "tag:e",
        "error:Connection",
        "attempts:>3",
        "args.n:2",
        "args.n.x:1",
        "batch:night",
        "-batch:*",
        "resource:eu-1",
        "partition:CA",
        "-partition:*",
        "Peer",
        "age:<10s",
        "progress:>0",
        "-progress:>0",
        "progress:<=0",
        "state:failed queue:other",
        "worker:*",
        "wait:>3s",
    ],
)
def test_a_task_that_does_not_match(text: str) -> None:
    assert not matches(parsed(text), TASK, NOW)


def test_a_task_waits_from_the_time_that_it_was_due() -> None:
    pending = Task(id="", handler="", queue="", state=State.PENDING, params="{}", created_at=NOW - 9)
    assert waited(pending, NOW) == 9
    assert waited(Task(id="", handler="", queue="", state=State.HELD, params="{}", created_at=NOW - 9), NOW) is None
    assert waited(TASK, NOW) == 3_000_000
