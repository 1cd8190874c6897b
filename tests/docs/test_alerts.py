"""The page about alerts: its settings are accepted, its code runs and checks a signature, and its table is complete."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from pitboss import config
from pitboss.model.alert import Severity
from pitboss.model.alert_facts import CONDITIONS
from pitboss.model.alert_message import AlertLine, AlertMessage, Kind, document, signature
from pitboss.model.duration import spoken
from tests.docs.pages import ROOT, blocks

PAGE = ROOT / "docs" / "how-to" / "alerts.md"
NOW = 1_800_000_000


def code(*parts: str) -> dict[str, Any]:
    """The names that the code blocks with these texts define."""
    names: dict[str, Any] = {}
    for block in blocks(PAGE):
        if block.language == "python" and any(part in block.text for part in parts):
            exec(block.text, names)
    return names


def test_its_settings_are_accepted_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("alerts", "slack_url", "mail"):
        (tmp_path / name).write_text("https://example.org/secret")
    tables = "\n".join(block.text for block in blocks(PAGE) if block.language == "toml")
    (tmp_path / "pitboss.toml").write_text(tables.replace("/run/secrets", str(tmp_path)))
    spec = config.alerts_spec(config.load().alerts, "sqlite:///pitboss.db")
    assert spec is not None
    assert [one.type for one in spec.channels] == ["webhook", "log", "slack", "email", "function"]
    assert {"mail_fails"} < {one.name for one in spec.rules}


def test_a_receiver_can_check_the_signature_as_it_says() -> None:
    check = code("is_from_pitboss")["is_from_pitboss"]
    header = signature("s3cret", b'{"a": 1}', NOW)
    assert check("s3cret", header, b'{"a": 1}', NOW + 10)
    assert not check("s3cret", header, b'{"a": 2}', NOW + 10)
    assert not check("other", header, b'{"a": 1}', NOW + 10)
    assert not check("s3cret", header, b'{"a": 1}', NOW + 301)


def test_its_message_has_the_fields_that_are_sent() -> None:
    (shown,) = [json.loads(block.text) for block in blocks(PAGE) if block.language == "json"]
    line = AlertLine(rule="disk", severity=Severity.HIGH, firing=True, about="full")
    sent = document(AlertMessage(kind=Kind.ALERT, lines=(line,)))
    assert list(shown) == list(sent)
    assert list(shown["alerts"][0]) == list(sent["alerts"][0])


def test_its_function_is_a_handler() -> None:
    app = code("alert_channel")["app"]
    (handler,) = app.describe()
    assert handler.name == "oncall"
    assert '"alert_parameter":"alert"' in handler.about


def test_every_rule_is_in_the_table_with_its_severity_and_time() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| .* \| (.*) \| \w+ \|$", PAGE.read_text(), re.MULTILINE))
    severities = dict(re.findall(r"^\| `(\w+)` \| .* \| .* \| (\w+) \|$", PAGE.read_text(), re.MULTILINE))
    assert severities == {name: one.severity.value for name, one in CONDITIONS.items()}
    for name, one in CONDITIONS.items():
        told = rows[name].replace(" min", "m").replace(" s", "s")
        # That a store is away is itself a time.
        assert told == (spoken(one.lasting) if one.lasting else "–")
