"""Worker pools declared in code."""

from pathlib import Path

import pytest

from pitboss import App, InvalidInput
from pitboss.model.pool import RestartPolicy
from pitboss.worker.describe import described

APP = """
from pitboss import App
app = App()
app.pool("download", queues=["download"], workers="1-4", memory="512MB", env={"A": "1"})

@app.task(queue="download")
def fetch(url: str) -> str: ...
"""


def test_a_pool_is_kept_under_its_name() -> None:
    app = App()
    app.pool("download", queues=["download"], workers=2, concurrency=1, memory="512MB", restart="on-failure")
    app.pool("rest")
    pool = app.pools["download"]
    assert (pool.name, pool.queues, pool.min_workers, pool.max_workers) == ("download", ("download",), 2, 2)
    assert (pool.memory, pool.restart) == (512 * 1024**2, RestartPolicy.ON_FAILURE)
    assert app.pools["rest"].queues is None
    assert app.pools["rest"].named == ()


def test_bad_pools_are_refused_where_they_are_declared() -> None:
    app = App()
    app.pool("video-preview")
    for name in ("video-preview", "Video_Preview"):
        with pytest.raises(InvalidInput, match="there are two pools named"):
            app.pool(name)
    with pytest.raises(InvalidInput, match=r'pool "x", workers: .* is not a number of workers'):
        app.pool("x", workers="many")
    with pytest.raises(InvalidInput, match='has no key "worker"'):
        app.pool("x", worker=2)  # type: ignore[call-arg]
    with pytest.raises(InvalidInput, match="cannot name a pool"):
        app.pool("a b")
    assert list(app.pools) == ["video-preview"]


def test_pools_are_part_of_an_app_s_description(tmp_path: Path) -> None:
    (tmp_path / "media_app.py").write_text(APP)
    found = described(str(tmp_path / "media_app.py"))
    assert found.error is None
    (pool,) = found.pools
    assert (pool.name, pool.max_workers, pool.env) == ("download", 4, {"A": "1"})
    assert set(pool.named) == {"queues", "workers", "memory", "env"}
