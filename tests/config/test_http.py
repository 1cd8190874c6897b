"""The settings of the HTTP API, and what its server process is told."""

from pathlib import Path

import msgspec
import pytest

from pitboss import config
from pitboss.config import ServerSpec, is_loopback, server_spec
from pitboss.model.duration import SECOND
from pitboss.model.errors import InvalidInput
from pitboss.model.limits import Window
from pitboss.model.log_settings import LogSettings


def test_by_default_only_this_machine_is_answered_and_no_other_site() -> None:
    found = config.load().http
    assert (found.enabled, found.host, found.port) == (True, "127.0.0.1", 8000)
    assert (found.origins, found.rate_limit, found.max_body) == ((), None, 1024**2)


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("LocalHost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.7", False),
        ("128.0.0.1", False),
        ("box1.example.org", False),
        ("localhost.example.org", False),
    ],
)
def test_what_other_machines_can_reach(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


def test_options_of_the_command_line_override_and_are_named(folder: Path) -> None:
    (folder / "pitboss.toml").write_text("[http]\nport = 9000\nenabled = true\n")
    found = config.loaded({"http.port": 8001, "http.enabled": False, "http.host": None})
    assert (found.settings.http.port, found.settings.http.enabled) == (8001, False)
    assert found.origins["http.port"] == "command line (--port)"
    assert found.origins["http.enabled"] == "command line (--no-http)"
    assert found.origins["http.host"] == "default"
    assert config.loaded().origins["http.port"] == f"file ({folder / 'pitboss.toml'})"


def test_the_files_of_tls_are_relative_to_the_settings_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "pitboss.toml").write_text('[http]\ntls_cert = "tls/cert.pem"\ntls_key = "/etc/key.pem"\n')
    (folder / "deep").mkdir()
    monkeypatch.chdir(folder / "deep")
    found = config.load().http
    assert (found.tls_cert, found.tls_key) == (f"{folder}/tls/cert.pem", "/etc/key.pem")
    own = config.loaded({"http.tls_cert": "mine.pem"}).settings.http
    assert own.tls_cert == f"{folder}/deep/mine.pem"


@pytest.mark.parametrize("key", ["tls_cert", "tls_key"])
def test_a_certificate_and_its_key_come_together(folder: Path, key: str) -> None:
    (folder / "pitboss.toml").write_text(f'[http]\n{key} = "x.pem"\n')
    with pytest.raises(InvalidInput, match=f"http.{key} = .* cannot be used") as caught:
        config.loaded()
    assert str(folder / "pitboss.toml") in caught.value.what
    assert "http.tls_cert and http.tls_key" in caught.value.fix


def test_every_site_must_be_allowed_explicitly(folder: Path) -> None:
    (folder / "pitboss.toml").write_text('[http]\norigins = "*"\n')
    assert config.load().http.origins == ("*",)


def test_a_rate_of_the_file_can_be_lifted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "pitboss.toml").write_text('[http]\nrate_limit = "100/60s"\n')
    monkeypatch.setenv("PITBOSS_HTTP__RATE_LIMIT", "none")
    assert config.load().http.rate_limit is None


def test_a_server_is_told_everything_and_survives_the_way_as_json(folder: Path) -> None:
    (folder / "pitboss.toml").write_text('[http]\nhost = "[::1]"\nrate_limit = "100/60s"\norigins = "https://a.org"\n')
    logs = LogSettings(folder="logs")
    spec = server_spec(config.load().http, "sqlite:////x.db", logs=logs, release="1.2")
    assert (spec.host, spec.url) == ("::1", "http://[::1]:8000")
    assert (spec.rate, spec.origins, spec.release) == ((Window(100, 60 * SECOND),), ("https://a.org",), "1.2")
    assert msgspec.json.decode(msgspec.json.encode(spec), type=ServerSpec) == spec


def test_the_url_of_a_server_with_a_certificate_is_https() -> None:
    assert ServerSpec(store="", tls_cert="a", tls_key="b", host="box1", port=443).url == "https://box1:443"
