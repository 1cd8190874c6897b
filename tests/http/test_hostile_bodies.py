"""Bodies made to break a parser, a check or a store: each gets a clear refusal, and nothing of it is stored."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.http.site import Site

VALID: dict[str, dict[str, Any]] = {
    "/api/task-types/register": {"name": "new", "version": "1", "param_schema": {"type": "object"}},
    "/api/tasks": {"type": "echo", "params": {"a": 1}},
    "/api/tasks/bulk": {"tasks": [{"type": "echo", "params": {"a": 1}}, {"type": "echo", "params": {"a": 2}}]},
    "/api/batches": {"type": "echo", "items": [{"a": 1}, {"a": 2}]},
    "/api/keys": {"name": "new", "roles": ["viewer"]},
    "/api/schedules": {"name": "new", "type": "echo", "cron": "0 3 * * *", "params": {"a": 1}},
    "/api/events": {"name": "user.signup", "data": {"a": 1}, "key": "a"},
    "/api/workers/register": {"worker_id": "new", "metadata": {"a": 1}},
    "/api/resource-pools/new/members": {"members": [{"name": "new", "fields": {"url": "x"}}]},
}
OPTIONAL = {"/api/workers/register": {"metadata"}, "/api/events": {"data", "key"}, "/api/schedules": {"params"}}
NAMES: tuple[Any, ...] = (
    None,
    5,
    True,
    [],
    {},
    "",
    "x" * 129,
    "a b",
    "a/b",
    "ü",
    "a\0",
    "-a",
    ".a",
    "a\n",
    "../a",
    "<script>",
)
# Instead of the whole body: the bytes themselves.
BODIES: dict[str, bytes] = {
    "nothing": b"",
    "spaces": b"   ",
    "null": b"null",
    "a number": b"5",
    "a text": b'"text"',
    "a list": b"[]",
    "a list of bodies": b"[{}]",
    "not JSON": b"{not json}",
    "single quotes": b"{'type': 'echo'}",
    "a form": b"type=echo&params=1",
    "XML": b'<?xml version="1.0"?><!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><a>&b;</a>',
    "deep lists": b"[" * 100_000,
    "deep objects": b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
    "a long number": b"9" * 100_000,
    "UTF-16": '{"type": "echo"}'.encode("utf-16"),
    "a BOM": b'\xef\xbb\xbf{"type": "echo"}',
    "NUL bytes": b"\0" * 100,
}
# Put into a valid body, after its first brace.
FIELDS: dict[str, bytes] = {
    "cut off": b'"a": ',
    "a comment": b"/* a */",
    "invalid UTF-8": b'"a": "\xff\xfe", ',
    "overlong UTF-8": b'"a": "\xc0\xaf", ',
    "half a surrogate": b'"a": "\\ud800", ',
    "half a surrogate as key": b'"\\udfff": 1, ',
    "a surrogate in UTF-8": b'"a": "\xed\xa0\x80", ',
    "a raw control character": b'"a": "\x00", ',
    "a wrong escape": b'"a": "\\x41", ',
    "a leading zero": b'"a": 012, ',
    "a number too long to read": b'"a": ' + b"9" * 5_000 + b", ",
    "a comma too many": b", ",
    "a key that is no text": b"1: 2, ",
    "deep nesting": b'"a": ' + b"[" * 5_000 + b"]" * 5_000 + b", ",
}
LONG, HUGE, NAN, ENDLESS = "x" * 5_000, 2**70, float("nan"), float("-inf")
# Instead of one field of a valid body.
WRONG: dict[str, dict[str, tuple[Any, ...]]] = {
    "/api/task-types/register": {
        "name": NAMES,
        "version": (None, 1, "", LONG, "\0"),
        "param_schema": (None, 1, [], {}, "", "{", "[]", {"type": 5}, {"type": "object", "required": 1}, {"$ref": "#"}),
        "queue": ("a b", "", 5),
        "max_attempts": (0, -1, 1001, 1.5, "3", True, HUGE),
        "timeout": (0, -1, 1e9, "60", True),
        "dedupe": ("sometimes", 1),
        "description": (LONG, "\0", 1),
    },
    "/api/tasks": {
        "type": (None, 5, "", LONG, [], "none"),
        "params": (None, "{}", 5, [1], {"a": "\0"}, {"\0": 1}, {"a": HUGE}, {"a": "x" * 300_000}, [[]],
                   {"a": NAN}, {"a": [ENDLESS]}),
        "priority": (HUGE, "1", 1.5, True, 40_000, NAN, ENDLESS),
        "delay": (-1, "1", 1e12, NAN, ENDLESS),
        "run_at": (5, "soon", "2030-01-01", "2030-01-01T00:00:00", "1700000000", "0001-01-01T00:00:00+23:00", True),
        "max_attempts": (0, HUGE),
        "expires_in": (0, -1, 1e12),
        "tags": ("a", ["a b"], [1], ["a"] * 51),
        "dedupe": ("maybe",),
        "dedupe_key": ("", LONG, "\0", 5),
        "queue": ("other", "a b"),
    },
    "/api/tasks/bulk": {
        "tasks": (
            None, {}, [], "a", [{}], [None], [[]],
            [{"type": "echo", "params": {}}, {"type": "none", "params": {}}],
            [{"type": "echo", "params": {}}, {"type": "echo", "params": {"a": "\0"}}],
            [{"type": "echo", "params": {}}] * 1_001,
        ),
    },
    "/api/batches": {
        "type": (None, 5, "", "none"),
        "items": (None, {}, [], [1], ["a"], [{"a": 1}, {"a": "\0"}], [{}, {"a": HUGE}], [{"a": NAN}]),
        "lane": ("a b", "", 5),
        "name": (5, LONG, "\0"),
        "data": (5, "a", {"a": "\0"}, {"a": HUGE}),
        "on_complete": (5, "none"),
        "priority": (HUGE, "1"),
    },
    "/api/schedules": {
        "name": NAMES,
        "type": (None, 5, "", LONG, [], "none"),
        "cron": (5, "", LONG, "0 3 * *", "0 25 * * *", "61 * * * *", "0 0 30 2 *", "@reboot", "* * * * * * *",
                 "\0", None),
        "every": (1, 0, -1, "10m", True, NAN, ENDLESS, 1e12),
        "at": ("2030-01-01T00:00:00Z", "soon", "2030-01-01T00:00:00", 5, "0001-01-01T00:00:00+23:00"),
        "tz": ("Prague", "UTC+1", "", 5, "\0", LONG, "../../etc/passwd"),
        "params": ("{}", 5, [1], {"a": "\0"}, {"\0": 1}, {"a": HUGE}, {"a": NAN}),
        "queue": ("a b", "", 5),
        "priority": (HUGE, "1", 1.5, True, 40_000),
        "max_attempts": (0, HUGE, "3"),
        "timeout": (0, -1, "60", 1e12),
        "overlap": ("sometimes", 1, ""),
        "catchup": ("some", 1),
        "jitter": (-1, "1", 1e12),
    },
    "/api/events": {
        "name": (None, 5, "", "a b", "a..b", ".a", "a.", "*", "user.*", "ü", "a\0", "a\n", "x" * 129, [], "<script>"),
        "data": ("\0", {"a": "\0"}, {"\0": 1}, HUGE, [HUGE], NAN, [ENDLESS], "x" * 300_000),
        "key": (5, "", "x" * 513, "\0", []),
    },
    "/api/keys": {"name": NAMES, "roles": (None, [], "admin", ["root"], [1], [None], {}, ["ADMIN"], ["admin", "root"])},
    "/api/workers/register": {
        "worker_id": (None, 5, "", "x" * 201, "\0", "a\nb", []),
        "name": (5, LONG, "\0"),
        "status": ("gone", 5),
        "metadata": (5, "a", [1], {"a": "\0"}, {"\0": 1}, {"a": HUGE}, {"a": "x" * 10_000}, {"a": NAN}),
        "types": ("a", ["a b"], [5]),
    },
    "/api/resource-pools/new/members": {
        "members": (
            None, {}, [], [{}], [{"name": "a b"}], [{"name": "a", "weight": 0}], [{"name": "a", "fields": {"a": [1]}}],
            [{"name": "a", "fields": {"a": "\0"}}], [{"name": "a", "labels": ["a b"]}],
            [{"name": "a", "labels": ["a"] * 21}], [{"name": "a", "fields": {"a": NAN}}],
            [{"name": "a"}, {"name": "b", "weight": "1"}], [{"name": "a", "fields": {"url": "http://user:secret@host"}}],
        ),
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with Site() as running:
        running.http.post("/api/task-types/register", json=VALID["/api/task-types/register"] | {"name": "echo"})
        yield running


def hostile(path: str) -> Iterator[tuple[str, bytes]]:
    valid = json.dumps(VALID[path]).encode()
    yield from BODIES.items()
    for name, field in FIELDS.items():
        yield name, valid[:1] + field + valid[1:]
    for field_name, values in WRONG[path].items():
        for value in values:
            yield f"{field_name}: {value!r:.60}", json.dumps(VALID[path] | {field_name: value}).encode()
    for field_name in VALID[path].keys() - OPTIONAL.get(path, set()):
        left_out = {key: value for key, value in VALID[path].items() if key != field_name}
        yield f"without {field_name}", json.dumps(left_out).encode()


def clear(answer: httpx.Response) -> bool:
    """A refusal in the envelope, with a sentence, that does not send the body back."""
    body = answer.json()
    codes = (400, 404, 409, 413)
    return (
        answer.status_code in codes and body["success"] is False and bool(body["error"]) and len(answer.content) < 9_000
    )


@pytest.mark.parametrize("path", VALID)
def test_a_hostile_body_gets_a_clear_refusal_and_stores_nothing(site: Site, path: str) -> None:
    before, count, taken = site.counts(), 0, list[str]()
    for name, body in hostile(path):
        answer = site.http.post(path, content=body, headers={"Content-Type": "application/json"})
        count += 1
        if not clear(answer):
            taken.append(f"{name}: {answer.status_code} {answer.text:.200}")
    assert not taken, "\n".join(taken)
    assert site.counts() == before
    assert count >= 40


def test_there_are_enough_of_them() -> None:
    assert sum(1 for path in VALID for _ in hostile(path)) >= 400


def test_afterwards_the_valid_bodies_are_taken() -> None:
    with Site() as site:
        site.http.post("/api/task-types/register", json=VALID["/api/task-types/register"] | {"name": "echo"})
        before = site.counts()
        for path, body in VALID.items():
            # The first key closes the server: it comes last.
            if path != "/api/keys":
                assert site.http.post(path, json=body).status_code in (200, 201), path
        assert site.http.post("/api/keys", json=VALID["/api/keys"]).status_code == 201
        assert {name: count - before[name] for name, count in site.counts().items()} == {
            "tasks": 4, "types": 1, "keys": 1, "batches": 1, "queues": 1, "resources": 1, "workers": 1,
            "schedules": 1, "events": 1,
        }  # fmt: skip


def test_a_wrong_name_is_explained_in_words(site: Site) -> None:
    answer = site.http.post("/api/keys", json={"name": "a b", "roles": ["viewer"]})
    words = "A name is 1 to 128 letters, digits and _ . : - and begins with a letter, digit or _"
    assert answer.json()["error"] == f"name: {words}"
    assert answer.json()["details"]["errors"] == [{"field": "name", "message": words}]


def test_unknown_fields_are_left_out_and_mistyped_ones_refused(site: Site) -> None:
    odd = {"zzz": {"deep": ["\0", HUGE]}, "parent_task_id": 7, "success": True, "\0": 1}
    created = site.http.post("/api/tasks", json={"type": "echo", "params": {"odd": 1}, **odd})
    assert created.status_code == 201
    claimed = site.http.post("/api/tasks/claim", json={"worker_id": "w", **odd}).json()["id"]
    assert (
        site.http.post(f"/api/tasks/{claimed}/fail", json={"worker_id": "w", "error": "no", **odd}).status_code == 200
    )
    limited = site.http.patch("/api/queues/echo", json={"capacity": 1_000, **odd})
    assert limited.status_code == 200
    newest = site.http.get("/api/audit").json()["data"]["entries"][0]
    assert (newest["act"], newest["details"]) == ("queues limit", {"before": {"limits": {}}, "capacity": 1_000})
    mistyped = site.http.post("/api/tasks", json={"type": "echo", "params": {}, "priorty": 5})
    assert (mistyped.status_code, mistyped.json()["details"]["fix"]) == (400, "did you mean priority?")


def test_tasks_of_a_key_are_limited_and_the_limit_is_taken_away(site: Site) -> None:
    limited = site.http.patch("/api/queues/echo", json={"max_per_key": 3})
    assert (limited.json()["data"]["max_per_key"], limited.json()["data"]["partitions"]) == (3, None)
    assert site.http.patch("/api/queues/echo", json={"capacity": 9}).json()["data"]["max_per_key"] == 3
    assert site.http.patch("/api/queues/echo", json={"max_per_key": None}).json()["data"]["max_per_key"] is None
    assert site.http.patch("/api/queues/echo", json={"max_per_key": 0}).status_code == 400


def test_the_last_of_two_equal_keys_counts(site: Site) -> None:
    body = b'{"type": "none", "type": "echo", "params": {"twice": 1, "twice": 2}}'
    answer = site.http.post("/api/tasks", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 201
    read = site.http.get(f"/api/tasks/{answer.json()['id']}").json()
    assert (read["type"], read["params"]) == ("echo", {"twice": 2})


def test_reports_with_odd_texts_are_kept_readable(site: Site) -> None:
    """A worker that cannot report its error would run the task for ever."""
    odd = "a\0b\u202e\x1b[31m" + "\U0001f600" * 10
    site.http.post("/api/tasks", json={"type": "echo", "params": {"odd": odd.replace("\0", "")}})
    task = site.http.post("/api/tasks/claim", json={"worker_id": "w"}).json()["id"]
    report = {"worker_id": "w", "error": odd, "error_type": odd, "traceback": odd, "retryable": False}
    site.http.post(f"/api/tasks/{task}/progress", json={"worker_id": "w", "progress": 1, "message": odd})
    assert site.http.post(f"/api/tasks/{task}/fail", json=report).status_code == 200
    read = site.http.get(f"/api/tasks/{task}").json()["data"]
    assert read["error_message"] == odd.replace("\0", "\\x00") == read["message"]
