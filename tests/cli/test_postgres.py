"""The same commands on PostgreSQL."""

import signal
from pathlib import Path

import psycopg

from tests.cli.command_line import Process, pitboss

APP = """
from pitboss import App, Lease

app = App()
proxies = app.resources("proxies", concurrency=3)

@app.task(max_attempts=1)
async def check(profile: str, proxy: Lease = proxies.lease()) -> str:
    if profile.endswith("7"):
        raise LookupError("no profile")
    return proxy.name

@app.task
async def report(batch: str, status: str) -> None:
    print(f"over: {batch} {status}", flush=True)
"""


def test_from_sql_by_hand_to_a_result(folder: Path, postgres_dsn: str) -> None:
    script = pitboss("db", "sql", "postgres").out
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute(script.encode())
    store = {"PITBOSS_STORE": postgres_dsn}
    assert pitboss("db", "status", "--json", env=store).json()["current"] is True
    pitboss("init", ".")
    with Process("up", "--workers", "1", cwd=folder, env=store) as process:
        process.until("is ready")
        answer = pitboss("tasks", "enqueue", "greet", '{"name": "you"}', "--wait", "--timeout", "30s", env=store)
        assert answer.out.strip() == '"Hello, you!"'
        assert pitboss("status", "--check", env=store).code == 0
        process.tell(signal.SIGTERM)
        assert process.ended() == 0
    assert pitboss("tasks", "list", "--json", env=store).json()["tasks"]
    assert not (folder / "pitboss.db").exists()


def test_an_upgrade_that_changes_tables_is_in_the_audit_log(folder: Path, postgres_dsn: str) -> None:
    store = {"PITBOSS_STORE": postgres_dsn}
    for _ in range(2):
        assert pitboss("db", "upgrade", env=store).code == 0
        assert [one["act"] for one in pitboss("audit", "--json", env=store).json()["entries"]] == ["db upgrade"]


def test_batches_and_resources(folder: Path, postgres_dsn: str) -> None:
    store = {"PITBOSS_STORE": postgres_dsn}
    (folder / "app.py").write_text(APP)
    assert (
        pitboss("resources", "import", "proxies", "-", stdin="10.0.0.1:80:ann:canary-9\n10.0.0.2:80\n", env=store).code
        == 0
    )
    with Process("up", "app.py", "--workers", "1", cwd=folder, env=store) as process:
        process.until("is ready")
        items = "\n".join(f'{{"profile": "p{number}"}}' for number in range(30))
        batch = pitboss(
            "batches",
            "create",
            "check",
            "--file",
            "-",
            "--name",
            "night",
            "--on-complete",
            "report",
            stdin=items,
            env=store,
        ).out.strip()
        process.until(f"over: {batch} done_with_errors")
        process.tell(signal.SIGTERM)
        assert process.ended() == 0
    page = pitboss("batches", "show", batch[-12:], "--json", env=store).json()
    assert (page["batch"]["percent"], page["batch"]["counts"]) == (100, {"completed": 27, "failed": 3})
    assert [(group["error"], group["count"]) for group in page["errors"]] == [("LookupError", 3)]
    assert "3 items set to run again" in pitboss("batches", "requeue", batch, "--error", "LookupError", env=store).err
    failed = pitboss(
        "tasks", "list", f"batch:{batch}", "resource:proxies/10.0.0.*", "--json", "-n", "100", env=store
    ).json()
    assert len(failed["tasks"]) == 30
    members = pitboss("resources", "list", "proxies", "--json", env=store)
    assert sum(member["uses"] for member in members.json()["members"]) == 30
    said = [members, *(pitboss("resources", "show", "proxies", *name, env=store) for name in ([], ["10.0.0.1:80"]))]
    assert all("canary" not in answer.out + answer.err for answer in said)
