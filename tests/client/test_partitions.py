"""Tasks have their partition keys from the first enqueue on, also if no manager has run yet."""

import asyncio
from pathlib import Path

import pytest

from pitboss import App
from pitboss.model.filter import EVERYTHING
from pitboss.model.partition import Partitioning
from pitboss.model.queue import Queue
from pitboss.model.task import Task


def make(store: str, *, divided: bool = True) -> App:
    app = App(store, name="shop")
    if divided:
        app.queue("targets", partition_by="{state}", mode="balanced")

    @app.task(queue="targets")
    def crawl(state: str) -> None: ...

    return app


def stored(app: App) -> list[Task]:
    return app.ask(lambda client: client.store.find(EVERYTHING), limit=9.0, what="reading").tasks


def queue(app: App) -> Queue:
    (found,) = app.ask(lambda client: client.store.queues(), limit=9.0, what="reading")
    return found


@pytest.fixture(params=["memory://", "sqlite:///jobs.db"])
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    return str(request.param)


def test_the_first_task_has_its_key(url: str) -> None:
    with make(url) as app:
        app.handlers["crawl"].enqueue("CA")
        app.handlers["crawl"].enqueue_many([{"state": "TX"}, {"state": "TX"}])
        asyncio.run(app.asend("crawl", {"state": "NY"}))
        assert sorted(task.partition or "" for task in stored(app)) == ["CA", "NY", "TX", "TX"]
        assert queue(app).partitions == Partitioning(by="{state}", mode="balanced")


def test_items_of_a_batch_have_their_keys(url: str) -> None:
    with make(url) as app:
        app.handlers["crawl"].batch([{"state": "CA"}, {"state": "TX"}])
        assert sorted(task.partition or "" for task in stored(app)) == ["CA", "TX"]


def test_partitions_that_only_the_settings_declare_count_too(url: str, tmp_path: Path) -> None:
    (tmp_path / "pitboss.toml").write_text('[queues.targets]\npartition_by = "{state}"\nmax_per_key = 2\n')
    with make(url, divided=False) as app:
        app.handlers["crawl"].enqueue("CA")
        assert [task.partition for task in stored(app)] == ["CA"]
        assert queue(app).max_per_key == 2


def test_an_app_without_partitions_declares_nothing_when_it_enqueues(url: str) -> None:
    with make(url, divided=False) as app:
        app.queue("mail", capacity=5)
        app.handlers["crawl"].enqueue("CA")
        assert [task.partition for task in stored(app)] == [None]
        assert queue(app).declared is None
