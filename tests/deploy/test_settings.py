"""Every variable that a file in deploy/ sets is one that the server or a worker reads."""

import pytest

from pitboss.config.environment import notes_on_variables
from pitboss.remote.config import SETTINGS
from tests.deploy.files import DEPLOY, ROOT, SYSTEMD, compose, manifest, unit, variables

# Read by libpq, and by the unit itself.
OTHERS = {"PGPASSWORD", "WORKER"}
PAGE = (ROOT / "docs" / "how-to" / "deploy.md").read_text()


def server_variables() -> set[str]:
    return {
        *variables(SYSTEMD / "pitboss.env.example"),
        *(line.partition("=")[0] for line in unit("pitboss.service")["Environment"]),
        *compose()["services"]["server"]["environment"],
        *manifest("Secret", "pitboss-server")["stringData"],
    }


def worker_variables() -> set[str]:
    (pod,) = manifest("Deployment", "pitboss-worker")["spec"]["template"]["spec"]["containers"]
    return {
        *variables(SYSTEMD / "worker.env.example"),
        *(word.partition("=")[0] for line in unit("pitboss-worker@.service")["Environment"] for word in line.split()),
        *compose()["services"]["worker"]["environment"],
        *manifest("Secret", "pitboss-worker")["stringData"],
        *(each["name"] for each in pod["env"]),
    }


def test_the_server_knows_its_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    names = server_variables() - OTHERS
    assert names == {"PITBOSS_STORE", "PITBOSS_LOGS", "PITBOSS_SECRET_KEYS"}
    for name in names:
        monkeypatch.setenv(name, "1")
    assert not [note for note in notes_on_variables((), ()) if note.split()[0] in names]


def test_a_worker_knows_its_variables() -> None:
    assert worker_variables() - OTHERS <= {each["env"] for each in SETTINGS.values()}


def test_the_page_explains_the_variables_of_a_worker() -> None:
    missing = {name for name in worker_variables() - OTHERS if f"| `{name}` |" not in PAGE}
    assert not missing


def test_the_page_names_files_that_exist_and_every_folder() -> None:
    for word in PAGE.replace("`", " ").split():
        if word.startswith("deploy/"):
            assert (ROOT / word.rstrip(".,:")).exists(), word
    assert all(f"deploy/{folder.name}/" in PAGE for folder in DEPLOY.iterdir())
