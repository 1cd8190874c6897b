"""Worker pools: from code, file and environment to what a manager runs."""

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pitboss import App, config
from pitboss.model.duration import span
from pitboss.model.errors import InvalidInput
from pitboss.model.pool import PoolSpec, RestartPolicy
from pitboss.model.pool_keys import KEYS, DeclaredPool

MB = 1024**2
MEDIA = """
[pools.download]
queues = ["download"]
workers = 2
concurrency = 1
memory = "512MB"
cpu = 0.5
restart = "always"

[pools.cutter]
queues = "cutter"
workers = {min = 1, max = 4}
memory = "1GB"
memory_soft = "700MB"
cpu = 1
restart = "on-failure"
restart_delay = "10s"
max_restarts = 3
restart_window = "5m"
max_age = "6h"
max_tasks_per_worker = 500
env = {FFMPEG_THREADS = "1"}

[pools.video-preview]
queues = ["preview"]
stagger = "2-5s"
delay = "8-20s"
unresponsive = "2m"
target_wait = "30s"
restart = "unless-stopped"
"""


def write(folder: Path, text: str) -> None:
    (folder / "pitboss.toml").write_text(text)


def named(*declared: DeclaredPool) -> dict[str, PoolSpec]:
    return {pool.name: pool for pool in config.pools(config.load(), declared)}


def code(name: str, **keys: Any) -> DeclaredPool:
    app = App()
    app.pool(name, **keys)
    return app.pools[name]


def test_without_pools_there_is_one_as_the_settings_say(folder: Path) -> None:
    cores = len(os.sched_getaffinity(0))
    assert config.pools(config.load()) == (PoolSpec(min_workers=cores, max_workers=cores, concurrency=16),)
    write(folder, 'workers = 3\nconcurrency = 2\nonly_queues = ["mail"]\n')
    assert config.pools(config.load()) == (
        PoolSpec(name="default", min_workers=3, max_workers=3, concurrency=2, queues=("mail",)),
    )


def test_every_key_of_a_file(folder: Path) -> None:
    write(folder, MEDIA)
    pools = named()
    assert list(pools) == ["download", "cutter", "video-preview"]
    assert pools["download"] == PoolSpec(
        name="download",
        queues=("download",),
        min_workers=2,
        max_workers=2,
        concurrency=1,
        memory=512 * MB,
        cpu=0.5,
        restart=RestartPolicy.ALWAYS,
    )
    assert pools["cutter"] == PoolSpec(
        name="cutter",
        queues=("cutter",),
        min_workers=1,
        max_workers=4,
        memory=1024 * MB,
        memory_soft=700 * MB,
        cpu=1.0,
        restart=RestartPolicy.ON_FAILURE,
        restart_delay=span("10s"),
        max_restarts=3,
        restart_window=span("5m"),
        max_age=span("6h"),
        max_tasks_per_worker=500,
        env={"FFMPEG_THREADS": "1"},
    )
    assert pools["video-preview"] == PoolSpec(
        name="video-preview",
        queues=("preview",),
        stagger=(span("2s"), span("5s")),
        delay=(span("8s"), span("20s")),
        unresponsive=span("2m"),
        target_wait=span("30s"),
        restart=RestartPolicy.UNLESS_STOPPED,
    )


def test_a_table_in_pyproject_serves_too(folder: Path) -> None:
    (folder / "pyproject.toml").write_text("[tool.pitboss.pools.download]\nworkers = 4\n")
    assert named()["download"].min_workers == 4


def test_a_pool_may_say_nothing_but_its_name(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(folder, "[pools.download]\n[pools.cutter.env]\n")
    assert named() == {"download": PoolSpec(name="download"), "cutter": PoolSpec(name="cutter")}
    assert config.loaded().origins["pools.download"] == f"file ({folder / 'pitboss.toml'})"
    monkeypatch.setenv("PITBOSS_POOLS__DOWNLOAD__WORKERS", "2")
    assert named()["download"].min_workers == 2


TEXTS = {
    "queues": "a,b",
    "workers": "1-8",
    "concurrency": "3",
    "memory": "64MB",
    "memory_soft": "32MB",
    "cpu": "0.25",
    "restart": "on-failure",
    "restart_delay": "7",
    "max_restarts": "9",
    "restart_window": "1h",
    "stagger": "1-2s",
    "max_tasks_per_worker": "10",
    "max_age": "1d",
    "delay": "3s",
    "unresponsive": "45s",
    "target_wait": "20s",
    "log_file": "state_worker_{slot0}.log",
}


@pytest.mark.parametrize(("key", "text"), TEXTS.items())
def test_every_key_can_come_from_the_environment(key: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    variable = config.variable(f"pools.video-preview.{key}")
    assert variable == f"PITBOSS_POOLS__VIDEO_PREVIEW__{key.upper()}"
    monkeypatch.setenv(variable, text)
    write(Path.cwd(), f'[pools.Video-Preview]\n{key} = "{text}"\n')
    found = config.loaded()
    assert found.origins[f"pools.Video-Preview.{key}"] == f"environment ({variable})"
    assert found.notes == ()
    from_variable = config.pools(found.settings)
    monkeypatch.delenv(variable)
    assert config.pools(config.load()) == from_variable != (PoolSpec(name="Video-Preview"),)


def test_no_key_is_forgotten_by_the_test_above() -> None:
    assert {*TEXTS, "env"} == set(KEYS)


def test_the_environment_of_workers_can_come_from_ours(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(folder, '[pools.download.env]\nA = "file"\nB = "file"\n')
    monkeypatch.setenv("PITBOSS_POOLS__DOWNLOAD__ENV__B", "variable")
    monkeypatch.setenv("PITBOSS_POOLS__DOWNLOAD__ENV__my__Name", "kept")
    pool = named(code("download", env={"A": "code", "C": "code"}))["download"]
    assert pool.env == {"A": "file", "B": "variable", "C": "code", "my__Name": "kept"}
    origins = config.loaded().origins
    assert origins["pools.download.env.B"] == "environment (PITBOSS_POOLS__DOWNLOAD__ENV__B)"
    assert config.variable("pools.download.env.my__Name") == "PITBOSS_POOLS__DOWNLOAD__ENV__my__Name"


def test_a_pool_that_only_the_environment_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PITBOSS_POOLS__VIDEO_PREVIEW__WORKERS", "2")
    assert named() == {"video_preview": PoolSpec(name="video_preview", min_workers=2, max_workers=2)}
    assert named(code("Video-Preview", concurrency=3)) == {
        "Video-Preview": PoolSpec(name="Video-Preview", min_workers=2, max_workers=2, concurrency=3)
    }


def test_an_empty_variable_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PITBOSS_POOLS__DOWNLOAD__WORKERS", "")
    assert config.load().pools == {}
    assert config.loaded().notes == ()


LAYERS = ("environment", "file", "code")
SAID = {"environment": 7, "file": 6, "code": 5}


@given(present=st.sets(st.sampled_from(LAYERS)), shared=st.none() | st.just(4))
def test_key_by_key_the_highest_layer_wins(present: set[str], shared: int | None) -> None:
    with pytest.MonkeyPatch.context() as patch:
        top = f"workers = {shared}\nconcurrency = {shared}\n" if shared else ""
        own = f"workers = {SAID['file']}\nconcurrency = {SAID['file']}\n" if "file" in present else ""
        write(Path.cwd(), f"{top}[pools.download]\n{own}")
        for key in ("WORKERS", "CONCURRENCY"):
            text = str(SAID["environment"]) if "environment" in present else ""
            patch.setenv(f"PITBOSS_POOLS__DOWNLOAD__{key}", text)
        keys = {"workers": SAID["code"], "concurrency": SAID["code"]} if "code" in present else {}
        pool = named(code("download", memory="1MB", **keys))["download"]
    winner = next((SAID[layer] for layer in LAYERS if layer in present), None)
    assert pool.min_workers == pool.max_workers == (winner or shared or 1)
    assert pool.concurrency == (winner or shared or 16)
    assert pool.memory == MB


def test_what_code_says_is_said_even_if_it_is_the_default(folder: Path) -> None:
    write(folder, "concurrency = 4\n")
    pools = named(code("said", concurrency=16), code("left_out"))
    assert (pools["said"].concurrency, pools["left_out"].concurrency) == (16, 4)


def test_a_file_can_lift_what_code_limits(folder: Path) -> None:
    write(folder, '[pools.download]\nmemory = "none"\nqueues = "*"\n')
    pool = named(code("download", memory="1MB", queues=["a"]))["download"]
    assert (pool.memory, pool.queues) == (None, None)


def test_keys_that_do_not_go_together_are_refused_when_they_meet(folder: Path) -> None:
    write(folder, '[pools.download]\nmemory = "1MB"\n')
    with pytest.raises(InvalidInput, match="memory_soft of pool"):
        named(code("download", memory_soft="2MB"))


@pytest.mark.parametrize(
    ("text", "what", "said"),
    [
        ("[pools.a]\nworkers = 'many'", "pools.a.workers = 'many' cannot be used", '"1-8"'),
        ("[pools.a]\nworkers = true", "pools.a.workers = True cannot be used", "whole number"),
        ("[pools.a]\nwrokers = 1", 'there is no setting "pools.a.wrokers"', 'write "pools.a.workers"'),
        ("[pools.a]\ncolour = 1", 'there is no setting "pools.a.colour"', "the keys of a pool are queues, workers"),
        ("[pools.a]\nqueues = [1]", "pools.a.queues = [1] cannot be used", "a list of names"),
        ("[pools.a]\nmemory = 'lots'", "pools.a.memory = 'lots' cannot be used", '"512MB"'),
        ("[pools.a]\nrestart = 'never'", "pools.a.restart = 'never' cannot be used", "always, on-failure"),
        ("[pools.a.workers]\nleast = 1", "pools.a.workers = {'least': 1} cannot be used", "{min = 1, max = 8}"),
        ("[pools.a.env]\nTOKEN = 12345", "pools.a.env.TOKEN cannot be used", "in quotes"),
        ("[pools.a]\nenv = 3", "pools.a.env cannot be used", '{NAME = "value"}'),
        ("[pools]\na = 3", "pools.a = 3 cannot be used", "[pools.NAME]"),
        ("pools = 3", "pools = 3 cannot be used", "[pools.NAME]"),
        ("[pools.'a.b']", "'a.b' cannot name a pool", "single - or _"),
        ("[pools.a-b]\n[pools.A_B]", '"a-b" and "A_B" are the same pool', "rename"),
        ("[pool.a]\nworkers = 1", 'there is no setting "pool"', 'write "pools"'),
    ],
)
def test_bad_values_name_the_file_the_key_and_the_fix(folder: Path, text: str, what: str, said: str) -> None:
    write(folder, text)
    with pytest.raises(InvalidInput) as caught:
        config.loaded()
    assert what in caught.value.what
    assert said in str(caught.value)
    assert str(folder / "pitboss.toml") in caught.value.what
    assert caught.value.fix
    assert "12345" not in str(caught.value)


def test_a_bad_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PITBOSS_POOLS__DOWNLOAD__MEMORY", "lots")
    with pytest.raises(InvalidInput, match=r"environment \(PITBOSS_POOLS__DOWNLOAD__MEMORY\)"):
        config.loaded()


@pytest.mark.parametrize(
    ("variable", "note"),
    [
        (
            "PITBOSS_POOLS__DOWNLOAD__WROKERS",
            "PITBOSS_POOLS__DOWNLOAD__WROKERS is not a setting and is ignored; "
            "did you mean PITBOSS_POOLS__DOWNLOAD__WORKERS?",
        ),
        (
            "PITBOSS_POOLS__DONWLOAD__WORKERS",
            'PITBOSS_POOLS__DONWLOAD__WORKERS names a pool "donwload", which the file does not have; '
            "did you mean PITBOSS_POOLS__DOWNLOAD__WORKERS?",
        ),
        (
            "PITBOSS_POOL__DOWNLOAD__WORKERS",
            "PITBOSS_POOL__DOWNLOAD__WORKERS is not a setting and is ignored; "
            "did you mean PITBOSS_POOLS__DOWNLOAD__WORKERS?",
        ),
        ("PITBOSS_POOLS__DOWNLOAD__ENV", "PITBOSS_POOLS__DOWNLOAD__ENV is not a setting and is ignored"),
        ("PITBOSS_POOLS", "PITBOSS_POOLS is not a setting and is ignored"),
    ],
)
def test_a_misspelt_variable_is_told(variable: str, note: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(folder, "[pools.download]\n")
    monkeypatch.setenv(variable, "3")
    (told,) = config.loaded().notes
    assert told.startswith(note)


def test_a_pool_unlike_the_others_is_no_mistake(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(folder, "[pools.download]\n")
    monkeypatch.setenv("PITBOSS_POOLS__MAIL__WORKERS", "3")
    assert config.loaded().notes == ()
    assert list(named()) == ["download", "mail"]


@pytest.mark.parametrize(
    "pattern",
    [
        *("../x_{slot}.log", "a/{slot}.log", "a\\\\{slot}.log", ".{slot}.log", "a b{slot}.log", "{slot}.txt", "{slot}"),
        *("{slot!r}.log", "{slot:03}.log", "{slot.real}.log", "{}.log", "{host}_{slot}.log", "{slot", "", 3, ["a.log"]),
    ],
)
def test_a_pattern_that_names_no_log_files_is_refused(pattern: Any) -> None:
    with pytest.raises(InvalidInput, match="does not name log files"):
        code("scrapers", log_file=pattern)


def test_log_files_of_several_workers_need_a_number_and_none_is_shared(folder: Path) -> None:
    assert code("scrapers", log_file="one.log").log_file == "one.log"
    with pytest.raises(InvalidInput, match="one file for 4 workers"):
        code("scrapers", log_file="one.log", workers=4)
    write(
        folder,
        '[pools.a]\nlog_file = "w_{slot}.log"\nworkers = 2\n[pools.b]\nlog_file = "w_{slot0}.log"\nworkers = 2\n',
    )
    with pytest.raises(InvalidInput, match=r'pool "b" makes the name w_1\.log'):
        named()
    write(folder, '[pools.manager]\nlog_file = "{pool}.log"\n')
    with pytest.raises(InvalidInput, match=r"belongs to the manager"):
        named()
    write(folder, '[pools.a]\nlog_file = "{pool}_{slot}.log"\n[pools.b]\nlog_file = "{worker}.log"\n')
    assert {pool.log_file for pool in named().values()} == {"{pool}_{slot}.log", "{worker}.log"}
    write(folder, '[pools.a]\nlog_file = "none"\n')
    assert named(code("a", log_file="w_{slot}.log"))["a"].log_file is None
