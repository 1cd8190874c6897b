"""The same commands on PostgreSQL."""

import signal
from pathlib import Path

import psycopg

from tests.cli.desk import Process, pitboss


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
