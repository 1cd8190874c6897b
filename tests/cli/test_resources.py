"""`pitboss resources`: pools and members, and that no command ever shows a secret."""

import re
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import typer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pitboss.cli.errors import Exit
from pitboss.cli.screen import Screen
from pitboss.engines.capabilities import figures_of, resources_of
from pitboss.engines.protocol import Store
from pitboss.model.duration import SECOND
from pitboss.model.figures import RAW, ResourceSample, Sample, bucket
from pitboss.model.limits import Window
from pitboss.model.outcome import Completed, Failed, Rotated, decide
from pitboss.model.policy import Backoff, Policy
from pitboss.model.queue import HandlerInfo
from pitboss.model.resource import Limits, PoolRules, Report, ResourceOutcome, Want
from pitboss.model.session import ClaimRequest, SessionInfo, Slot
from pitboss.model.settlement import Settlement
from pitboss.model.task import Claim, TaskError
from tests.cli.command_line import Answer, new, pitboss, put, with_store
from tests.servers.proxy import StandIn, page

RULES = PoolRules(limits=Limits(windows=(Window(50, 3600 * SECOND), Window(6, 60 * SECOND)), min_delay=2 * SECOND))
CHECK = HandlerInfo(name="check", queue="proxies", resources="proxies")


def declared(*names: str) -> None:
    """A pool with rules of its own, and these members."""
    with_store(lambda store: resources_of(store).declare_pool("proxies", RULES))
    for number, name in enumerate(names):
        answer = pitboss("resources", "add", "proxies", name, "--url", f"http://127.0.0.1:{9000 + number}")
        assert answer.code == 0, answer.err


def member(name: str) -> dict[str, Any]:
    found = pitboss("resources", "show", "proxies", name, "--json").json()["member"]
    assert isinstance(found, dict)
    return found


def lease(outcome: ResourceOutcome | None = None, *, error: str | None = None, times: int = 1) -> None:
    """Use a member and give it back."""

    async def work(store: Any) -> None:
        for number in range(times):
            name = f"lease{number}{error}"
            await store.acquire("proxies", Want(), 60 * SECOND, lease=name)
            if outcome is not None:
                await store.release(name, Report(outcome=outcome, error=error))

    with_store(work)


def test_a_member_is_added_and_changed() -> None:
    options = ["--url", "http://10.0.0.7:8080", "--field", "user=ann", "--label", "eu", "--weight", "50"]
    answer = pitboss("resources", "add", "proxies", "p1", *options, "--secret", "password", stdin="s3cret-word\n")
    assert answer.code == 0, answer.err
    assert answer.err.strip() == "proxies/p1 is added with password sealed"
    found = member("p1")
    assert found["fields"] == {"scheme": "http", "host": "10.0.0.7", "port": 8080, "user": "ann"}
    assert (found["secrets"], found["labels"], found["weight"]) == ({"password": "***"}, ["eu"], 50)
    assert (found["condition"], found["uses"]) == ("ready", 0)
    again = pitboss("resources", "add", "proxies", "p1", "--url", "http://10.0.0.8:8080")
    assert "proxies/p1 is changed" in again.err


@pytest.mark.parametrize("address", ["10.0.0.9:8080", "http://10.0.0.9:8080"])
def test_an_address_can_stand_in_the_place_of_the_name(address: str) -> None:
    assert pitboss("resources", "add", "proxies", address).code == 0
    assert member("10.0.0.9:8080")["fields"] == {"scheme": "http", "host": "10.0.0.9", "port": 8080}


def test_secrets_come_from_the_environment_or_several_lines() -> None:
    env = {"API_TOKEN": "tok-12345"}
    assert pitboss("resources", "add", "keys", "k1", "--secret-env", "token=API_TOKEN", env=env).code == 0
    two = ["--secret", "password", "--secret", "cookie"]
    assert pitboss("resources", "add", "keys", "k2", *two, stdin="one-line\ntwo-line\n").code == 0
    found = pitboss("resources", "show", "keys", "--json").json()["members"]
    assert [sorted(one["secrets"]) for one in found] == [["token"], ["cookie", "password"]]


def test_a_secret_on_the_command_line_is_taken_with_a_warning() -> None:
    answer = pitboss("resources", "add", "keys", "k1", "--secret", "token=abcdefgh")
    assert answer.code == 0
    assert "other users of this host can read" in answer.err
    assert "abcdefgh" not in answer.err
    url = pitboss("resources", "add", "keys", "k2", "--url", "http://ann:abcdefgh@host:1")
    assert "other users of this host can read" in url.err


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["p 1"], "cannot name a resource"),
        (["p1", "--field", "user"], "has no value"),
        (["p1", "--field", "password=s3cret-word"], "would be stored and shown in the clear"),
        (["p1", "--secret-env", "token=NOT_SET_ANYWHERE"], "is not set"),
        (["p1", "--secret", "password"], "was not given"),
        (["p1", "--label", "a b"], "cannot name a label"),
        (["p1", "--url", "http://"], "is not a member"),
        (["p1", "--weight", "0"], "weight"),
    ],
)
def test_what_cannot_be_a_member(args: list[str], said: str) -> None:
    answer = pitboss("resources", "add", "proxies", *args)
    assert answer.code == Exit.USAGE, answer.err
    assert said in answer.err
    assert "fix:" in answer.err


def test_a_store_in_memory_would_forget_it_at_once() -> None:
    for command in (["add", "proxies", "p1"], ["import", "proxies", "-"]):
        answer = pitboss("resources", *command, "--store", "memory://", stdin="10.0.0.1:80\n")
        assert answer.code == Exit.USAGE
        assert "exists within one process only" in answer.err


def test_a_file_is_imported_whole_or_not_at_all(folder: Path) -> None:
    (folder / "list.txt").write_text("# mine\n10.0.0.1:80:ann:pw-one\n10.0.0.2:80:bob:pw-two\n")
    dry = pitboss("resources", "import", "proxies", "list.txt", "--dry-run")
    assert "would add or change 2 members" in dry.err
    assert "proxies/10.0.0.1:80  (password ***)" in dry.err
    answer = pitboss("resources", "import", "proxies", "list.txt", "--label", "eu")
    assert answer.err.strip() == "2 members added to proxies, 0 changed"
    assert member("10.0.0.1:80")["labels"] == ["eu"]
    again = pitboss("resources", "import", "proxies", "-", stdin="10.0.0.2:80:bob:pw-new\n10.0.0.3:80\n")
    assert again.err.strip() == "1 member added to proxies, 1 changed"
    bad = pitboss("resources", "import", "proxies", "-", stdin="10.0.0.9:80:ann:pw-bad\nnot a member at all:x\n")
    assert bad.code == Exit.USAGE
    assert "line 2 of stdin" in bad.err
    assert "pw-bad" not in bad.err
    assert len(pitboss("resources", "list", "proxies", "--json").json()["members"]) == 3


@pytest.mark.parametrize(
    ("form", "text", "said"),
    [
        ("urls", "10.0.0.1:80\n", "line 1 of stdin is not of the format urls"),
        ("lines", "http://10.0.0.1:80\n", "line 1 of stdin is not of the format lines"),
        ("csv", "10.0.0.1:80\n", "line 1 of stdin is not of the format csv"),
        ("xml", "10.0.0.1:80\n", "is not a format"),
    ],
)
def test_a_format_that_is_named_is_kept_to(form: str, text: str, said: str) -> None:
    answer = pitboss("resources", "import", "proxies", "-", "--format", form, stdin=text)
    assert answer.code == Exit.USAGE
    assert said in answer.err


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("urls", "http://ann:pw@10.0.0.1:80\n"),
        ("lines", "10.0.0.1:80:ann:pw\n"),
        ("csv", "name,host,port,password\n10.0.0.1:80,10.0.0.1,80,pw\n"),
    ],
)
def test_every_format_makes_the_same_member(form: str, text: str) -> None:
    answer = pitboss("resources", "import", "proxies", "-", "--format", form, stdin=text)
    assert answer.code == 0, answer.err
    found = member("10.0.0.1:80")
    assert (found["fields"]["host"], found["fields"]["port"], found["secrets"]) == ("10.0.0.1", 80, {"password": "***"})


def test_pools_and_members_are_listed_with_their_condition() -> None:
    declared("a", "b", "c")
    pitboss("resources", "disable", "proxies", "c", "--reason", "bill not paid")
    lease(ResourceOutcome.RATE_LIMITED, error="429 Too Many Requests")
    listed = pitboss("resources", "list", "proxies").out
    assert "cooling" in listed
    assert "429 Too Many Requests" in listed
    assert "bill not paid" in listed
    pools = pitboss("resources", "list", "--json").json()["pools"]
    assert pools[0]["conditions"] == {"ready": 1, "cooling": 1, "disabled": 1}
    assert pools[0]["steady_per_second"] == pytest.approx(2 * 50 / 3600)
    page = pitboss("resources", "show", "proxies").out
    assert "50/1h, 6/1m, 2s between uses, 1 at a time" in page
    assert "100 uses an hour" in page


def test_a_pool_shows_its_uses_by_destination() -> None:
    declared("a")
    assert "By destination" not in pitboss("resources", "show", "proxies").out
    used = ResourceSample(refusals={"shop.example": 26}, destinations={"shop.example": 100, "parts.example": 1200})

    async def work(store: Store) -> None:
        at = bucket(store.clock.now() - 3 * SECOND, RAW) - RAW
        await figures_of(store).add_samples([Sample(at=at, session=1, covered=10, resources={"proxies": used})])

    with_store(work)
    page = pitboss("resources", "show", "proxies").out
    assert re.search(r"shop\.example +100 +26\.0 %\n *parts\.example +1,200 +0\.0 %", page)
    document = pitboss("resources", "show", "proxies", "--json").json()
    assert document["destinations"]["shop.example"] == {"uses": 100, "refused": 26}


def test_a_member_has_a_page_of_its_own() -> None:
    declared("a")
    lease(ResourceOutcome.BLOCKED, error="blocked by the site")
    page = pitboss("resources", "show", "proxies", "a").out
    assert "condition    cooling" in page
    assert "ends         in 1" in page
    assert "blocked by the site" in page
    assert "1: 0 ok, 1 failed, 0 refused" in page
    assert "1 of 3 failures" in page
    found = member("a")
    assert (found["last_outcome"], found["failures_in_a_row"]) == ("blocked", 1)
    assert found["until"] is not None


def test_a_member_that_others_outdo_says_so() -> None:
    with_store(lambda store: resources_of(store).declare_pool("proxies", PoolRules()))
    for name in "ab":
        assert pitboss("resources", "add", "proxies", name, "--field", "host=x").code == 0
    with_store(lambda store: store.register([CHECK]))
    put(*(new("check", queue="proxies") for _ in range(4)))
    with_store(_fail_with_a)
    told = "failed 3 of 3 tasks that then succeeded with others"
    assert told in pitboss("resources", "list", "proxies").out
    assert f"why          {told}" in pitboss("resources", "show", "proxies", "a").out
    assert (member("a")["condition"], member("a")["at_fault"], member("b")["at_fault"]) == ("blacklisted", True, False)


async def _fail_with_a(store: Any) -> None:
    """Run the tasks: each fails with the member a, and succeeds with b."""
    session = await store.open_session(SessionInfo(host="h", handlers=("check",)))
    for _ in range(12):
        request = ClaimRequest(session=session.number, slots=(Slot(free=1),))
        for claim in (await store.claim(request)).claims:
            bad = claim.leased.name == "a"
            outcome = Rotated(TaskError(category="error", message="half a page")) if bad else Completed()
            report = Report(outcome=ResourceOutcome.TASK_ERROR if bad else ResourceOutcome.OK)
            transition = decide(claim, outcome, Policy(backoff=Backoff(base=0)), 0, 0.5)
            await store.settle([Settlement(id=claim.id, token=claim.token, transition=transition, report=report)])


def test_a_member_shows_what_happened_to_it() -> None:
    declared("a")
    assert "History" not in pitboss("resources", "show", "proxies", "a").out
    assert member("a")["history"] == []
    assert pitboss("resources", "disable", "proxies", "a", "--reason", "bill not paid").code == 0
    assert pitboss("resources", "enable", "proxies", "a").code == 0
    report = Report(outcome=ResourceOutcome.BLOCKED, error="status 403", took=SECOND // 4)

    async def work(store: Any) -> None:
        await store.acquire("proxies", Want(), 60 * SECOND, lease="one")
        await store.release("one", report)

    with_store(work)
    page = pitboss("resources", "show", "proxies", "a").out
    assert "after 250 ms on average" in page
    history = page.partition("History")[2].rstrip()
    assert history.index("cooling") < history.index("enabled") < history.index("disabled")
    assert history.endswith("bill not paid")
    found = member("a")
    assert found["response_seconds"] == 0.25
    assert [(one["what"], one["why"], one["times"]) for one in found["history"]] == [
        ("cooling", "status 403", 1),
        ("enabled", None, 1),
        ("disabled", "bill not paid", 1),
    ]
    assert found["history"][0]["until"] == found["until"]


def test_all_away_says_until_when() -> None:
    declared("a", "b")
    lease(ResourceOutcome.RATE_LIMITED, times=2)
    assert "2 proxies cooling, next in 1" in pitboss("resources", "show", "proxies").out


def test_members_are_switched_reset_and_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    declared("a", "b")
    assert pitboss("resources", "disable", "proxies", "a", "b").err.strip() == "proxies/a, proxies/b disabled"
    assert member("a")["condition"] == "disabled"
    assert pitboss("resources", "enable", "proxies", "--all").code == 0
    assert member("a")["condition"] == "ready"
    lease(ResourceOutcome.RATE_LIMITED)
    assert member("a")["condition"] == "cooling"
    assert pitboss("resources", "reset", "proxies", "a").err.strip() == "proxies/a reset"
    assert member("a")["condition"] in ("ready", "resting")
    assert pitboss("resources", "remove", "proxies", "a").code == Exit.REFUSED
    monkeypatch.setattr(Screen, "interactive", True)
    monkeypatch.setattr(typer, "confirm", lambda *_, **__: True)
    assert pitboss("resources", "remove", "proxies", "a").err.strip() == "proxies/a removed"
    assert pitboss("resources", "show", "proxies", "a").code == Exit.NOT_FOUND


@pytest.mark.parametrize("command", ["enable", "disable", "reset", "remove", "show", "test"])
def test_who_is_not_there_is_not_changed(command: str) -> None:
    declared("alpha", "beta")
    pool = pitboss("resources", command, "proxis", "alpha")
    assert pool.code == Exit.NOT_FOUND
    assert "did you mean proxies?" in pool.err
    one = pitboss("resources", command, "proxies", "alfa")
    assert one.code == Exit.NOT_FOUND
    assert "did you mean alpha?" in one.err
    if command not in ("show", "test"):
        assert pitboss("resources", command, "proxies").code == Exit.USAGE
        assert pitboss("resources", command, "proxies", "alpha", "--all").code == Exit.USAGE


def test_a_limit_holds_until_it_is_reset_and_shows_who_set_it() -> None:
    declared("a")
    answer = pitboss("resources", "limit", "proxies", "per_hour=20", "concurrency=none")
    assert answer.code == 0, answer.err
    assert "20/1h" in answer.err
    page = pitboss("resources", "show", "proxies").out
    assert re.search(r"per_hour +20 +set by operator \S+@\S+, .*\(declared: 50\)", page)
    assert re.search(r"per_minute +6 +declared", page)
    declared()
    assert "20/1h" in pitboss("resources", "show", "proxies").out
    assert pitboss("resources", "limit", "proxies", "--reset").code == 0
    assert "50/1h, 1 at a time" in pitboss("resources", "show", "proxies").out.replace("6/1m, ", "").replace(
        "2s between uses, ", ""
    )
    assert pitboss("resources", "limit", "proxis", "per_hour=1").code == Exit.NOT_FOUND
    assert pitboss("resources", "limit", "proxies", "per_hours=1").code == Exit.USAGE


def test_removing_a_member_names_the_task_that_holds_it() -> None:
    declared("a", "b")
    (task,) = put(new("check", "{}", queue="proxies"), handlers=(CHECK,))
    with_store(_claim_one)
    answer = pitboss("resources", "remove", "proxies", "a", "--yes")
    assert f"proxies/a is in use by task {task}; that task's next use() will be refused" in answer.err
    lease()
    assert "b is in use by a lease outside tasks" in pitboss("resources", "remove", "proxies", "b", "--yes").err


async def _claim_one(store: Any) -> None:
    session = await store.open_session(SessionInfo(host="h", handlers=("check",)))
    assert (await store.claim(ClaimRequest(session=session.number, slots=(Slot(free=1),)))).claims


def test_other_pages_mention_the_resource() -> None:
    declared("a")
    with_store(lambda store: store.register([CHECK]))
    first, second = put(new("check", "{}", queue="proxies"), new("check", "{}", queue="proxies"), handlers=(CHECK,))

    async def claim(store: Any) -> None:
        session = await store.open_session(SessionInfo(host="h", handlers=("check",)))
        claimed = await store.claim(ClaimRequest(session=session.number, slots=(Slot(free=5),)))
        assert [one.id for one in claimed.claims] == [first]

    with_store(claim)
    assert "resource     proxies/a" in pitboss("tasks", "show", first).out
    assert "it waits for a resource: proxies: 1 busy" in pitboss("tasks", "show", second).out
    assert member("a")["held_by"] == [first]
    status = pitboss("status", "--json").json()
    assert status["resources"][0]["stages"] == {"busy": 1}
    assert "Resources" in pitboss("status").out


class Proxy(BaseHTTPRequestHandler):
    """Answers every request itself, as a page that tells addresses would, if the password is right."""

    def do_GET(self) -> None:
        good = self.headers.get("Proxy-Authorization") == "Basic YW5uOmNhbmFyeS1wYXNz"
        self.send_response(200 if good else 407)
        self.end_headers()
        self.wfile.write(b'{"ip": "203.0.113.9"}' if good else b"who are you?")

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def proxy() -> Iterator[int]:
    server = HTTPServer(("127.0.0.1", 0), Proxy)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


def test_members_are_tested_through_themselves(proxy: int) -> None:
    lines = [f"127.0.0.1:{proxy}:ann:canary-pass", f"localhost:{proxy}:ann:canary-wrong", "127.0.0.1:1:ann:canary-dead"]
    pitboss("resources", "import", "proxies", "-", stdin="\n".join(lines))
    pitboss("resources", "add", "proxies", "nowhere")
    answer = pitboss("resources", "test", "proxies", "--url", "http://page.invalid/ip", "--json")
    assert answer.code == Exit.FAILED
    found = {one["name"]: one for one in answer.json()["members"]}
    good = found[f"127.0.0.1:{proxy}"]
    assert (good["ok"], good["status"], good["address"]) == (True, 200, "203.0.113.9")
    assert good["seconds"] > 0
    wrong = found[f"localhost:{proxy}"]
    assert (wrong["ok"], wrong["status"]) == (False, 407)
    assert found["127.0.0.1:1"]["error"]
    assert "has no address" in found["nowhere"]["error"]
    table = pitboss("resources", "test", "proxies", f"127.0.0.1:{proxy}", "--url", "http://page.invalid/ip")
    assert (table.code, "1 of 1 can be used" in table.err) == (0, True)
    assert "203.0.113.9" in table.out
    assert "canary" not in answer.out + answer.err + table.out + table.err


def test_without_a_page_a_proxy_is_asked_whether_it_is_one(proxy: int) -> None:
    with StandIn(lambda request: page(status=407)) as closed:
        lines = [f"127.0.0.1:{proxy}", "127.0.0.1:1", f"localhost:{closed.port}:ann:canary-pass"]
        pitboss("resources", "import", "proxies", "-", stdin="\n".join(lines))
        answer = pitboss("resources", "test", "proxies", "--json")
        found = {one["name"]: one for one in answer.json()["members"]}
    assert {name: one["ok"] for name, one in found.items()} == {
        f"127.0.0.1:{proxy}": None,
        "127.0.0.1:1": False,
        f"localhost:{closed.port}": False,
    }
    assert "refuses its user or password" in found[f"localhost:{closed.port}"]["error"]
    (asked,) = closed.requests
    assert (asked.method, asked.target) == ("CONNECT", "pitboss.invalid:443"), "no third party is contacted"
    assert asked.headers["proxy-authorization"] == "Basic YW5uOmNhbmFyeS1wYXNz"
    told = pitboss("resources", "test", "proxies", f"127.0.0.1:{proxy}")
    assert (told.code, "reachable" in told.out) == (0, True)
    assert "1 of 1 are reachable; that does not prove that they work: --url URL" in told.err
    assert pitboss("resources", "test", "proxies", "--url", "ftp://x").code == Exit.USAGE
    assert pitboss("resources", "test", "proxies", "--timeout", "0").code == Exit.USAGE


@pytest.mark.parametrize(
    ("answer", "error"),
    [(None, "closes the connection without an answer"), (b"?? what\r\n", "does not answer in HTTP")],
)
def test_a_member_that_only_accepts_connections_is_not_usable(answer: bytes | None, error: str) -> None:
    with StandIn(lambda request: answer) as useless:
        pitboss("resources", "import", "proxies", "-", stdin=f"127.0.0.1:{useless.port}\n")
        tested = pitboss("resources", "test", "proxies")
    assert (tested.code, error in tested.out) == (Exit.FAILED, True)


def test_a_member_that_its_tasks_have_condemned_is_not_usable(proxy: int) -> None:
    for name in ("good", "bad"):
        pitboss("resources", "add", "proxies", name, "--url", f"http://127.0.0.1:{proxy}", "--label", name)

    async def condemn(store: Any) -> None:
        for number in range(3):
            leased = await store.acquire("proxies", Want(("bad",)), SECOND, lease=f"lease-{number}")
            await store.release(leased.lease, Report(outcome=ResourceOutcome.RESOURCE_ERROR, error="empty pages"))

    with_store(condemn)
    tested = pitboss("resources", "test", "proxies", "bad")
    assert tested.code == Exit.FAILED
    assert "on the blacklist for" in tested.out
    assert "empty pages" in tested.out


def test_a_member_that_the_comparison_has_condemned_is_not_usable(proxy: int) -> None:
    """Its tasks fail with an error that blames nothing, and then succeed with another member."""
    for name in ("good", "bad"):
        pitboss("resources", "add", "proxies", name, "--url", f"http://127.0.0.1:{proxy}")
    put(*(new("check", "{}", queue="proxies") for _ in range(8)), handlers=(CHECK,))

    async def work(store: Any) -> None:
        session = await store.open_session(SessionInfo(host="h", handlers=("check",)))
        for _ in range(12):
            asked = ClaimRequest(session=session.number, slots=(Slot(free=2),))
            await store.settle([_settled(claim) for claim in (await store.claim(asked)).claims])

    with_store(work)
    tested = pitboss("resources", "test", "proxies", "bad", "good")
    assert tested.code == Exit.FAILED
    (told,) = [line for line in tested.out.splitlines() if line.startswith("bad")]
    assert "tasks that then succeeded with others" in told
    assert "1 of 2 are reachable" in tested.err


def _settled(claim: Claim) -> Settlement:
    bad = claim.leased is not None and claim.leased.name == "bad"
    outcome = Failed(TaskError(category="error", message="an empty page")) if bad else Completed("1")
    report = Report(outcome=ResourceOutcome.TASK_ERROR if bad else ResourceOutcome.OK)
    transition = decide(claim, outcome, Policy(backoff=Backoff(base=0)), 0, 0.5)
    return Settlement(id=claim.id, token=claim.token, transition=transition, report=report)


def test_a_socks_proxy_is_greeted() -> None:
    heard: list[bytes] = []

    def serve(listener: socket.socket) -> None:
        for reply in (b"\x01\x00", b"\x01\x01"):
            client, _ = listener.accept()
            with client:
                heard.append(client.recv(16))
                client.sendall(b"\x05\x02")
                heard.append(client.recv(64))
                client.sendall(reply)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
        pitboss("resources", "import", "s", "-", stdin=f"socks5://ann:canary@127.0.0.1:{listener.getsockname()[1]}\n")
        codes = [pitboss("resources", "test", "s").code for _ in range(2)]
    assert codes == [0, Exit.FAILED]
    assert heard[:2] == [b"\x05\x02\x00\x02", b"\x01\x03ann\x06canary"]


def test_a_member_that_does_not_answer_costs_only_its_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        pitboss("resources", "import", "proxies", "-", stdin=f"127.0.0.1:{deaf.getsockname()[1]}\n")
        options = ["--url", "http://page.invalid/", "--timeout", "100ms", "--json"]
        answer = pitboss("resources", "test", "proxies", *options)
    assert answer.code == Exit.FAILED
    assert answer.json()["members"][0]["error"]


CANARIES = {
    "password": "canary-pass-1",
    "cookie": "canary/cookie+2",
    "token": "canary token 3",
    "user": "canary-user-4",
    "session": "canäry-5",
}


def test_no_command_shows_a_secret(folder: Path, proxy: int) -> None:
    """Every command on a pool whose every secret is a canary, as text and as JSON, with its failures."""
    said: list[Answer] = []

    def run(*args: str, **more: Any) -> None:
        said.append(pitboss(*args, **more))

    flags = [word for key in CANARIES for word in ("--secret", key)]
    lines = "\n".join(CANARIES.values()) + "\n"
    run("resources", "add", "proxies", "p1", "--url", f"http://127.0.0.1:{proxy}", *flags, stdin=lines)
    given = [word for key, value in CANARIES.items() for word in ("--secret", f"{key}={value}")]
    run("resources", "add", "proxies", "p2", "--url", "http://canary-user-4:canary-pass-1@127.0.0.1:1", *given)
    run("resources", "add", "proxies", "p 3", *given)
    run("resources", "import", "proxies", "-", "--dry-run", stdin="h:1:ann:canary-pass-1\n")
    run("resources", "import", "proxies", "-", stdin="h:1:ann:canary-pass-1\n:::canary-pass-1\n")
    run("resources", "import", "proxies", "-", stdin="name,password,cookie\np4,canary-pass-1,canary/cookie+2\n")
    run("resources", "import", "proxies", "-", stdin="name,password\np5,canary-pass-1,canary/cookie+2\n")
    put(new("check", "{}", queue="proxies"), handlers=(CHECK,))

    async def fail(store: Any) -> None:
        session = await store.open_session(SessionInfo(host="h", handlers=("check",)))
        (claim,) = (await store.claim(ClaimRequest(session=session.number, slots=(Slot(free=1),)))).claims
        error = TaskError(category="error", message="it failed")
        await store.settle(
            [
                Settlement(
                    id=claim.id,
                    token=claim.token,
                    transition=decide(claim, Failed(error), Policy(), 0, 0.5),
                    report=Report(outcome=ResourceOutcome.BLOCKED, error="it failed"),
                )
            ]
        )

    with_store(fail)
    for reader in (
        ["resources", "list"],
        ["resources", "list", "proxies"],
        ["resources", "show", "proxies"],
        *(["resources", "show", "proxies", name] for name in ("p1", "p2", "p4")),
        ["resources", "test", "proxies", "--url", "http://page.invalid/"],
        ["resources", "test", "proxies"],
        ["tasks", "list"],
        ["tasks", "show", "check"],
        ["status"],
        ["queues", "list"],
        ["config", "show"],
        ["db", "status"],
    ):
        run(*reader)
        run(*reader, "--json")
    for act in (["disable"], ["enable"], ["reset"], ["remove", "--yes"]):
        run("resources", act[0], "proxies", "p1", *act[1:])
    for answer in said:
        for canary in CANARIES.values():
            assert canary not in answer.out + answer.err
            assert canary.encode("unicode_escape").decode() not in answer.out + answer.err
    store = b"".join(path.read_bytes() for path in folder.glob("pitboss.db*") if path.is_file())
    for canary in CANARIES.values():
        assert canary.encode() not in store


NASTY = st.text("@:/#%?&=\\'\" é密a1", min_size=3, max_size=8).map(lambda text: f"q7{text.strip()}Zx")


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(password=NASTY)
def test_no_output_has_a_password_whatever_it_is_made_of(folder: Path, password: str) -> None:
    encoded = quote(password, safe="")
    shown = [
        pitboss("resources", "add", "proxies", f"10.0.0.7:8080:ann:{password}"),
        pitboss("resources", "add", "proxies", f"http://ann:{encoded}@10.0.0.8:8080"),
        pitboss("resources", "add", "proxies", "p3", "--url", f"10.0.0.9:8080:ann:{password}"),
    ]
    assert [answer.code for answer in shown] == [0, 0, 0]
    bare = f"http://ann:{password}@10.0.0.8:8080"
    shown += [
        pitboss("resources", "add", "proxies", bare),
        pitboss("resources", "add", "proxies", "p4", "--url", bare),
        pitboss("resources", "add", "proxies", "p5", bare),
        pitboss("resources", "add", bare),
        pitboss("resources", "add", bare, "p6"),
        pitboss("resources", "add", "proxies", f"ann:{password}@h:1"),
        pitboss("resources", "add", "proxies", "p7", "--field", bare),
        pitboss("resources", "add", "proxies", "p8", "--weight", bare),
        pitboss("resources", "add", "proxies", "p9", "--secret", bare),
        pitboss("resources", "list", "proxies"),
        pitboss("resources", "list", "proxies", "--json"),
        pitboss("resources", "show", "proxies", "10.0.0.7:8080"),
        pitboss("resources", "show", "proxies", "10.0.0.8:8080", "--json"),
        pitboss("resources", "disable", "proxies", bare),
    ]
    for answer in shown:
        for part in (password, encoded, password[:5], password[-5:]):
            assert part not in answer.out + answer.err


def test_a_new_key_is_made_only_on_request_while_the_old_one_is_missing(folder: Path) -> None:
    assert pitboss("resources", "add", "keys", "k1", "--secret", "token=abcdefgh").code == 0
    (keys,) = folder.rglob("keys")
    keys.unlink()
    refused = pitboss("resources", "add", "keys", "k2", "--secret", "token=abcdefgh")
    assert refused.code == Exit.USAGE
    assert "put the key back" in refused.err
    assert not keys.exists()
    assert pitboss("resources", "add", "keys", "k2", "--secret", "token=abcdefgh", "--new-key").code == 0
    assert keys.exists()
