"""The table [alerts]: what it says, and what is wrong with it."""

from pathlib import Path

import pytest

from pitboss import config
from pitboss.model.alert import Severity
from pitboss.model.alert_facts import CONDITIONS
from pitboss.model.alert_message import ChannelSpec
from pitboss.model.alert_rules import AlertsSpec, Pause, Scale, action_of
from pitboss.model.duration import SECOND, span
from pitboss.model.errors import InvalidInput

FULL = """
[alerts]
digest = "30m"

[alerts.channels.ops]
type = "webhook"
url = "https://example.org/hook"
secret_file = "signing.txt"
headers = { "X-Team" = "ops" }
allow_private = true
timeout = "5s"

[alerts.channels.mail]
type = "email"
host = "mail.example.org"
from = "pitboss@example.org"
to = ["ops@example.org"]
user = "pitboss"
password = "hunter2"

[alerts.channels.oncall]
type = "function"
handler = "page_somebody"

[alerts.rules]
disk = "off"

[alerts.rules.processing_delay]
threshold = "1m"
severity = "high"

[alerts.rules.mail_fails]
condition = "dead_letter_rate"
threshold = "2%"
for = "30s"
window = "5m"
severity = "low"
channels = ["ops"]
action = "pause mail"
only = ["mail"]
"""
OPS = '[alerts.channels.ops]\ntype = "webhook"\nurl = "https://example.org"\n'


def spec(folder: Path, text: str) -> AlertsSpec:
    (folder / "pitboss.toml").write_text(text)
    found = config.load()
    made = config.alerts_spec(found.alerts, "postgresql://ann:hunter2@host/jobs")
    assert made is not None
    return made


def refused(folder: Path, text: str) -> str:
    with pytest.raises(InvalidInput) as error:
        spec(folder, text)
    return f"{error.value.what} | {error.value.why} | {error.value.fix}"


def test_all_keys_are_read(folder: Path) -> None:
    (folder / "signing.txt").write_text("s3cret\n")
    found = spec(folder, FULL)
    ops, mail, oncall = found.channels
    assert ops == ChannelSpec(
        name="ops",
        type="webhook",
        url="https://example.org/hook",
        secret="s3cret",
        headers={"X-Team": "ops"},
        allow_private=True,
        timeout=5 * SECOND,
        port=587,
    )
    assert (mail.sender, mail.to, mail.port, mail.security) == (
        "pitboss@example.org",
        ("ops@example.org",),
        587,
        "starttls",
    )
    assert (oncall.handler, oncall.outside) == ("page_somebody", False)
    assert (found.digest, found.store) == (span("30m"), "postgresql://ann:***@host/jobs")
    rules = {one.name: one for one in found.rules}
    assert rules.keys() == {*CONDITIONS, "mail_fails"} - {"disk"}
    assert (rules["processing_delay"].threshold, rules["processing_delay"].severity) == (60 * SECOND, Severity.HIGH)
    own = rules["mail_fails"]
    assert (own.condition, own.threshold, own.lasting, own.window) == (
        "dead_letter_rate",
        0.02,
        span("30s"),
        span("5m"),
    )
    assert (own.channels, own.action, own.only) == (("ops",), "pause mail", ("mail",))


def test_a_threshold_can_say_how_many_times(folder: Path) -> None:
    rules = {one.name: one for one in spec(folder, "[alerts.rules.slow_handler]\nthreshold = 2.5\n").rules}
    assert rules["slow_handler"].threshold == 2.5
    for wrong in ("0.5", '"often"', "true"):
        with pytest.raises(InvalidInput, match="does not say how many times"):
            spec(folder, f"[alerts.rules.slow_handler]\nthreshold = {wrong}\n")


def test_without_a_table_the_built_in_rules_go_to_the_log(folder: Path) -> None:
    found = spec(folder, "")
    assert {one.name for one in found.rules} == set(CONDITIONS)
    assert [one.type for one in found.channels] == ["log"]
    assert found.outside == ()
    rules = {one.name: one for one in found.rules}
    # The three of the reference.
    assert (rules["worker_crash_rate"].threshold, rules["worker_crash_rate"].severity) == (0.1, Severity.HIGH)
    assert (rules["memory_usage"].threshold, rules["memory_usage"].severity) == (1.0, Severity.MEDIUM)
    assert (rules["processing_delay"].threshold, rules["processing_delay"].severity) == (300 * SECOND, Severity.LOW)


def test_alerts_can_be_off(folder: Path) -> None:
    (folder / "pitboss.toml").write_text("[alerts]\nenabled = false\n")
    assert config.alerts_spec(config.load().alerts, "memory://") is None


def test_the_environment_overrides_and_adds(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PITBOSS_ALERTS__CHANNELS__OPS__SECRET", "from the environment")
    monkeypatch.setenv("PITBOSS_ALERTS__CHANNELS__SLACK__TYPE", "slack")
    monkeypatch.setenv("PITBOSS_ALERTS__CHANNELS__SLACK__URL", "https://hooks.slack.com/x")
    monkeypatch.setenv("PITBOSS_ALERTS__RULES__DISK", "off")
    monkeypatch.setenv("PITBOSS_ALERTS__RULES__PROCESSING_DELAY__FOR", "90")
    found = spec(folder, OPS)
    assert {one.name: one.secret or one.url for one in found.channels} == {
        "ops": "from the environment",
        "slack": "https://hooks.slack.com/x",
    }
    rules = {one.name: one for one in found.rules}
    assert "disk" not in rules
    assert rules["processing_delay"].lasting == 90 * SECOND
    assert config.loaded().notes == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (OPS.replace("webhook", "fax"), "alerts.channels.ops.type"),
        (
            '[alerts.channels.ops]\ntype = "webhook"\n',
            'url cannot be used: it is missing | a channel of type "webhook" needs it | write url =',
        ),
        (f'{OPS}user = "ann"\n', 'a channel of type "webhook" does not have it | its keys are allow_private'),
        (f'{OPS}secret = "a"\nsecret_file = "b"\n', "secret_file is set too"),
        (f'{OPS}secret_file = "nowhere"\n', "nowhere cannot be read"),
        (OPS.replace("https:", "ftp:"), "it is a URL that begins with https:// or http://"),
        (f'{OPS}timeout = "1h"\n', "must not wait for longer than a minute"),
        ('[alerts]\ndigest = "1s"\n', 'write "1m" or more'),
        ("[alerts.rules.mine]\nthreshold = 3\n", 'the alert "mine" has no condition'),
        ('[alerts.rules.mine]\ncondition = "weather"\n', "the conditions are worker_crash_rate"),
        ('[alerts.rules.disk]\nthreshold = "10%"\n', "rules.disk.threshold cannot be used: '10%' is not a threshold"),
        ("[alerts.rules.dead_letter_rate]\nthreshold = 3\n", 'write "10%" or 0.1'),
        ('[alerts.rules.disk]\nseverity = "worst"\n', "these are high, medium, low"),
        ('[alerts.rules.disk]\naction = "explode"\n', 'write "notify", "pause QUEUE" or "scale POOL +2"'),
        ('[alerts.rules.disk]\nchannels = ["ops"]\n', "the channels are log | add [alerts.channels.ops]"),
        ('[alerts.rules.disk]\nwindow = "2d"\n', "from one minute to one hour"),
        ('[alerts.rules.disk]\nfore = "1m"\n', 'write "alerts.rules.disk.for"'),
        ('[alerts.channels."Op s"]\ntype = "log"\n', "small letters, digits and _"),
        ("[alerts]\nchannels = 3\n", "write [alerts.channels.NAME]"),
    ],
)
def test_what_is_wrong_is_told_with_its_cause_and_what_to_write(folder: Path, text: str, said: str) -> None:
    assert said in refused(folder, text)


def test_a_secret_is_not_told_in_an_error(folder: Path) -> None:
    assert "hunter2" not in refused(folder, '[alerts.channels.ops]\ntype = "webhook"\nurl = "ftp://ann:hunter2@x"\n')


def test_actions() -> None:
    assert action_of("notify") is None
    assert action_of("pause mail") == Pause("mail")
    assert action_of("scale download +2") == Scale("download", 2)
    for wrong in ("pause", "scale download 2", "scale +2", "pause pitboss.outbox.x"):
        with pytest.raises(InvalidInput):
            action_of(wrong)


def test_a_rule_that_does_not_exist_cannot_be_switched_off(folder: Path) -> None:
    """Regression: it was accepted, and the rule that was meant stayed on."""
    text = refused(folder, '[alerts.rules]\ndiskk = "off"\n')
    assert "alerts.rules.diskk cannot be used: there is no such rule to switch off" in text
    assert 'write "disk"' in text
    own = '[alerts.rules.mine]\nenabled = false\ncondition = "disk"\n'
    assert "mine" not in [one.name for one in spec(folder, own).rules]


def test_a_rate_above_all_is_refused_and_memory_may_exceed_its_limit(folder: Path) -> None:
    """Regression: a rule with such a threshold never fires."""
    assert "150%" in refused(folder, '[alerts.rules.dead_letter_rate]\nthreshold = "150%"\n')
    rules = {one.name: one for one in spec(folder, '[alerts.rules.memory_usage]\nthreshold = "150%"\n').rules}
    assert rules["memory_usage"].threshold == 1.5
