"""Which worker pools `pitboss up` runs, and what it refuses."""

from pathlib import Path
from typing import Any

import pytest

from pitboss import config
from pitboss.cli.errors import Exit
from pitboss.cli.up_pools import chosen_pools, pool_lines
from pitboss.model.errors import InvalidInput
from pitboss.model.pool import PoolSpec
from pitboss.model.pool_keys import DeclaredPool, declared
from pitboss.model.queue import HandlerInfo
from pitboss.worker.describe import Description
from tests.cli.command_line import pitboss

MEDIA = """
[pools.download]
queues = ["download"]
workers = 2
[pools.video-preview]
queues = ["preview"]
"""


def chosen(
    *sizes: str,
    queues: tuple[str, ...] = ("download",),
    pools: tuple[DeclaredPool, ...] = (),
    only: str | None = None,
    **given: Any,
) -> dict[str, PoolSpec]:
    described = Description(
        handlers=[HandlerInfo(name=f"do_{queue}", queue=queue) for queue in queues], pools=list(pools)
    )
    return {pool.name: pool for pool in chosen_pools(config.loaded(given), described, sizes, only)}


def test_without_pools_all_is_as_the_options_say(folder: Path) -> None:
    pools = chosen(workers=3, concurrency=2, queues=("anything",))
    assert pools == {"default": PoolSpec(min_workers=3, max_workers=3, concurrency=2)}
    assert chosen("default=4")["default"].max_workers == 4


def test_a_single_pool_may_leave_queues_to_others(folder: Path) -> None:
    (folder / "pitboss.toml").write_text('only_queues = ["mail"]\n')
    assert chosen(queues=("other",))["default"].queues == ("mail",)


def test_sizes_and_a_choice_of_pools(folder: Path) -> None:
    (folder / "pitboss.toml").write_text(MEDIA)
    assert list(chosen()) == ["download", "video-preview"]
    pools = chosen("download=3", "Video_Preview=0-8")
    assert (pools["download"].min_workers, pools["download"].max_workers) == (3, 3)
    assert (pools["video-preview"].min_workers, pools["video-preview"].max_workers) == (0, 8)
    assert list(chosen(only_pools="VIDEO_PREVIEW")) == ["video-preview"]
    assert list(chosen(queues=("download", "preview"), only_pools="download")) == ["download"]


def test_this_host_s_choice_can_come_from_the_environment(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "pitboss.toml").write_text(MEDIA)
    monkeypatch.setenv("PITBOSS_ONLY_POOLS", "download")
    assert list(chosen()) == ["download"]


def test_pools_of_the_code_are_pools(folder: Path) -> None:
    pools = (declared("download", {"queues": "download"}),)
    assert chosen("download=2", pools=pools)["download"].min_workers == 2
    more = (*pools, declared("cutter", {}))
    with pytest.raises(InvalidInput, match="--workers does not name a worker pool"):
        chosen(pools=more, workers=2)


def test_the_number_of_workers_is_meant_for_the_only_declared_pool(folder: Path) -> None:
    pools = (declared("scrapers", {"workers": 10}),)
    found = chosen(pools=pools, workers=4)["scrapers"]
    assert (found.min_workers, found.max_workers) == (4, 4)
    (folder / "pitboss.toml").write_text("workers = 3\n")
    assert chosen(pools=pools)["scrapers"].max_workers == 10


def test_only_some_workers_of_each_pool(folder: Path) -> None:
    (folder / "pitboss.toml").write_text(MEDIA)
    assert {name: pool.only for name, pool in chosen(only="0,1").items()} == {
        "download": (0, 1),
        "video-preview": (0,),
    }
    assert {name: pool.only for name, pool in chosen(only="1").items()} == {"download": (1,)}
    ten = chosen("download=10", only="0-2, 7, 8-9")["download"]
    assert (ten.only, ten.max_workers) == ((0, 1, 2, 7, 8, 9), 10)
    assert list(pool_lines([ten])) == ["download  numbers 0-2, 7-9 of 10 workers × 16 tasks, queues download"]
    (folder / "pitboss.toml").unlink()
    assert chosen(workers=10, only="3", pools=(declared("one", {}),), queues=())["one"].only == (3,)


@pytest.mark.parametrize(
    ("only", "said"),
    [
        ("2", "--only names number 2, which no worker has"),
        ("0-3", "--only names numbers 2-3, which no worker has"),
        ("", "does not name workers"),
        ("a", "does not name workers"),
        ("-1", "does not name workers"),
        ("1-0", "does not name workers"),
        ("0,", "does not name workers"),
    ],
)
def test_numbers_that_no_worker_has(folder: Path, only: str, said: str) -> None:
    (folder / "pitboss.toml").write_text(MEDIA)
    with pytest.raises(InvalidInput) as caught:
        chosen(only=only)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("sizes", "given", "what", "said"),
    [
        ([], {"workers": 3}, "--workers does not name a worker pool", "--pool download=3"),
        ([], {"only_queues": "a"}, "--queues does not name a worker pool", "--only-pools download"),
        (["downlaod=3"], {}, '--pool names a worker pool "downlaod"', 'write "download"'),
        (["x=3"], {}, '--pool names a worker pool "x"', "the worker pools are download, video-preview"),
        (["download"], {}, "has no number of workers", "--pool download=3"),
        (["download=many"], {}, "'many' is not a number of workers", "1-8"),
        ([], {"only_pools": "vidoe-preview"}, "only_pools (command line (--only-pools))", 'write "video-preview"'),
    ],
)
def test_what_is_refused(folder: Path, sizes: list[str], given: dict[str, Any], what: str, said: str) -> None:
    (folder / "pitboss.toml").write_text(MEDIA)
    wanted = {"only_queues": None, **given}
    with pytest.raises(InvalidInput) as caught:
        chosen_pools(config.loaded(wanted), Description(handlers=[HandlerInfo(name="f", queue="download")]), sizes)
    assert what in caught.value.what
    assert said in str(caught.value)


def test_an_unserved_queue_is_refused(folder: Path) -> None:
    (folder / "pitboss.toml").write_text(MEDIA)
    with pytest.raises(InvalidInput) as caught:
        chosen(queues=("download", "mail"))
    assert caught.value.what == 'no worker pool serves the queue "mail", which the task do_mail uses'
    assert "download, preview" in caught.value.why
    assert 'add "mail" to the queues of a pool' in caught.value.fix
    (folder / "pitboss.toml").write_text(MEDIA + "[pools.rest]\n")
    assert chosen(queues=("download", "mail"))["rest"].queues is None


def test_lines() -> None:
    pools = [
        PoolSpec(
            name="download", queues=("download",), min_workers=2, max_workers=2, concurrency=1, memory=512 * 1024**2
        ),
        PoolSpec(name="rest", min_workers=1, max_workers=8),
        PoolSpec(name="one", queues=("a", "b")),
    ]
    assert list(pool_lines(pools)) == [
        "download  2 workers × 1 task, queues download, at most 512 MB",
        "rest      1-8 workers × 16 tasks, all queues",
        "one       1 worker × 16 tasks, queues a, b",
    ]


def test_up_says_what_is_wrong_before_it_starts(folder: Path) -> None:
    (folder / "app.py").write_text("from pitboss import App\napp = App()\n@app.task\ndef f() -> None: ...\n")
    (folder / "pitboss.toml").write_text(MEDIA)
    answer = pitboss("up", "app.py")
    assert answer.code == Exit.USAGE
    assert 'no worker pool serves the queue "default", which the task f uses' in answer.err
    assert not (folder / "pitboss.db").exists()


def test_config_show_tells_pools_and_hides_their_secrets(folder: Path) -> None:
    (folder / "pitboss.toml").write_text(
        MEDIA + 'delay = "8-20s"\nmax_age = "none"\nmemory = "512MB"\n[pools.video-preview.env]\nTOKEN = "hush"\n'
        "[pools.idle]\n"
    )
    variables = {"PITBOSS_POOLS__VIDEO_PREVIEW__WORKERS": "1-8"}
    answer = pitboss("config", "show", "--origin", env=variables)
    rows = {line.split()[0]: line.split(maxsplit=2)[1:] for line in answer.out.splitlines() if line}
    assert rows["pools.download.workers"] == ["2", "file (pitboss.toml)"]
    assert rows["pools.video-preview.workers"] == ["1-8", "environment (PITBOSS_POOLS__VIDEO_PREVIEW__WORKERS)"]
    assert rows["pools.video-preview.delay"] == ["8s-20s", "file (pitboss.toml)"]
    assert rows["pools.video-preview.max_age"][0] == "none"
    assert rows["pools.idle"] == ["-", "file (pitboss.toml)"]
    assert "512 MB" in answer.out
    assert "200 MB" in answer.out
    found = pitboss("config", "show", "--json", env=variables)
    values = {key: row["value"] for key, row in found.json()["settings"].items()}
    assert values["pools.video-preview.workers"] == {"min": 1, "max": 8}
    assert values["pools.video-preview.delay"] == [8, 20]
    assert values["pools.video-preview.memory"] == 512 * 1024**2
    assert values["log_age"] == 14 * 86_400
    assert "hush" not in answer.out + found.out
