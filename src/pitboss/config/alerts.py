"""The table [alerts]: channels, and rules over those that are built in."""

import difflib
import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, model_validator
from pydantic_settings import NoDecode

from pitboss.config.values import duration, whole
from pitboss.model.alert import Severity
from pitboss.model.alert_digest import DIGEST
from pitboss.model.alert_facts import CONDITIONS
from pitboss.model.alert_message import FUNCTION, LOG, ChannelSpec
from pitboss.model.alert_rules import (
    DEFAULT_CHANNEL,
    AlertsSpec,
    action_of,
    check_channels,
    condition_of,
    rules_of,
    threshold_of,
)
from pitboss.model.duration import SECOND, Span
from pitboss.model.errors import InvalidInput
from pitboss.model.queue import checked_name
from pitboss.model.text import masked

ALERTS = "alerts"
OFF = "off"
_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}\Z")
_HTTP = re.compile(r"https?://[^\s/]+\S*\Z")
_ADDRESS = re.compile(r"[^\s@<>]+@[^\s@<>]+\Z")
_SHORTEST_DIGEST: Span = 60 * SECOND
_WINDOWS = (60 * SECOND, 3600 * SECOND)
_LONGEST_TIMEOUT: Span = 60 * SECOND
_PORTS = {"starttls": 587, "tls": 465, "none": 25}
# Each may come from a file, whose name is the key with this at its end.
_FILE = "_file"
_SECRETS = ("url", "secret", "password")
# What each type needs, with what to write.
_NEEDS = {
    "webhook": {"url": 'url = "https://example.org/hook"'},
    "slack": {"url": 'url_file = "/run/secrets/slack_url"'},
    "email": {
        "host": 'host = "mail.example.org"',
        "sender": 'from = "pitboss@example.org"',
        "to": 'to = ["ops@example.org"]',
    },
}
_COMMON = frozenset({"type", "timeout"})
_OWN = {
    LOG: frozenset[str](),
    FUNCTION: frozenset({"handler"}),
    "webhook": frozenset({"url", "url_file", "secret", "secret_file", "headers", "allow_private"}),
    "slack": frozenset({"url", "url_file", "allow_private"}),
    "email": frozenset({"host", "port", "security", "user", "password", "password_file", "sender", "to"}),
}


def _names(value: Any) -> Any:
    """A list of names, or text with commas, as in an environment variable."""
    parts = [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value
    return tuple(parts) if isinstance(parts, list) else parts


def _url(value: Any) -> Any:
    if not isinstance(value, str) or not _HTTP.match(value):
        raise InvalidInput(
            "this is not the address of a web page",
            why="it is a URL that begins with https:// or http://",
            fix='write it like "https://example.org/hook"',
        )
    return value


def _addresses(value: Any) -> Any:
    parts = _names(value)
    for one in parts if isinstance(parts, tuple) else (parts,):
        _address(one)
    return parts


def _address(value: Any) -> Any:
    if not isinstance(value, str) or not _ADDRESS.match(value):
        raise InvalidInput(
            f"{value!r:.60} is not an e-mail address", why="it is a name, @ and a host", fix='write "ops@example.org"'
        )
    return value


def _digest(value: Any) -> Span:
    found = duration(value)
    if found < _SHORTEST_DIGEST:
        raise InvalidInput(
            "this digest period is too short",
            why="people would get a message each few seconds",
            fix='write "1m" or more',
        )
    return found


def _window(value: Any) -> Span:
    found = duration(value)
    if not _WINDOWS[0] <= found <= _WINDOWS[1]:
        raise InvalidInput(
            f"{value!r:.60} is no window of an alert",
            why="it is from one minute to one hour",
            fix='write it like "10m"',
        )
    return found


def _timeout(value: Any) -> Span:
    found = duration(value)
    if not 0 < found <= _LONGEST_TIMEOUT:
        raise InvalidInput(
            f"{value!r:.60} is no time limit of a channel",
            why="a message must not wait for longer than a minute",
            fix='write it like "10s"',
        )
    return found


def _action(value: Any) -> Any:
    action_of(value if isinstance(value, str) else repr(value))
    return value


def _condition(value: Any) -> Any:
    condition_of(value if isinstance(value, str) else repr(value))
    return value


def _severity(value: Any) -> Any:
    if value not in list(Severity):
        raise InvalidInput(
            f"{value!r:.60} is not a severity", why=f"these are {', '.join(Severity)}", fix='write one, such as "high"'
        )
    return value


def _subject(value: Any) -> Any:
    found = _names(value)
    for one in found if isinstance(found, tuple) else ():
        checked_name(str(one), "name")
    return found


Names = Annotated[tuple[str, ...], BeforeValidator(_names), NoDecode]


class ChannelSettings(BaseModel):
    """One table [alerts.channels.NAME]. `from` is a word of Python, so the field has another name."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=False)

    type: Literal["log", "webhook", "email", "slack", "function"]
    url: Annotated[str | None, BeforeValidator(_url)] = None
    url_file: str | None = None
    secret: str | None = None
    secret_file: str | None = None
    headers: dict[str, str] = {}
    allow_private: bool = False
    timeout: Annotated[Span, PlainValidator(_timeout)] = 10 * SECOND
    handler: str | None = None
    host: str | None = None
    port: Annotated[int | None, BeforeValidator(whole), Field(ge=1, le=65_535)] = None
    security: Literal["starttls", "tls", "none"] = "starttls"
    user: str | None = None
    password: str | None = None
    password_file: str | None = None
    sender: Annotated[str | None, BeforeValidator(_address), Field(alias="from")] = None
    to: Annotated[tuple[str, ...], BeforeValidator(_addresses), NoDecode] = ()


class RuleSettings(BaseModel):
    """One table [alerts.rules.NAME], or "off". `for` is a word of Python, so the field has another name."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    enabled: bool = True
    condition: Annotated[str | None, BeforeValidator(_condition)] = None
    threshold: Any = None
    lasting: Annotated[Span | None, PlainValidator(duration), Field(alias="for")] = None
    window: Annotated[Span | None, PlainValidator(_window)] = None
    severity: Annotated[Severity | None, BeforeValidator(_severity)] = None
    channels: Names | None = None
    action: Annotated[str | None, BeforeValidator(_action)] = None
    only: Annotated[tuple[str, ...] | None, BeforeValidator(_subject), NoDecode] = None

    @model_validator(mode="before")
    @classmethod
    def _off(cls, value: Any) -> Any:
        return {"enabled": False} if value == OFF else value


def _tables(value: Any, what: str) -> Any:
    if not isinstance(value, dict):
        raise InvalidInput(
            "this is not a table",
            why=f"each {what} has a name",
            fix=f"write [alerts.{what}s.NAME], and its keys below it",
        )
    for name in value:
        if not _NAME.match(name):
            raise InvalidInput(
                f"{name!r:.60} cannot name a {what} of alerts",
                why="a name has small letters, digits and _, and begins with a letter",
                fix="choose a name of that form",
            )
    return value


class AlertSettings(BaseModel):
    """The table [alerts]."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    enabled: bool = True
    digest: Annotated[Span, PlainValidator(_digest)] = DIGEST
    channels: Annotated[dict[str, ChannelSettings], BeforeValidator(lambda value: _tables(value, "channel"))] = {}
    rules: Annotated[dict[str, RuleSettings], BeforeValidator(lambda value: _tables(value, "rule"))] = {}


def keys_of(table: str) -> tuple[str, ...]:
    """The keys of a channel or a rule, as they are written."""
    model = ChannelSettings if table == "channels" else RuleSettings
    return tuple(field.alias or name for name, field in model.model_fields.items())


def alerts_spec(said: AlertSettings, store: str) -> AlertsSpec | None:
    """Rules and channels, complete; None if alerts are off. Files with secrets are read."""
    if not said.enabled:
        return None
    channels = tuple(_channel(name, one) for name, one in said.channels.items())
    rules = rules_of({name: _fields(name, one) for name, one in said.rules.items()})
    spec = AlertsSpec(rules=rules, channels=channels or (DEFAULT_CHANNEL,), digest=said.digest, store=masked(store))
    check_channels(rules, spec.channels)
    return spec


def _fields(name: str, said: RuleSettings) -> dict[str, Any] | None:
    if not said.enabled:
        if said.condition is None and name not in CONDITIONS:
            close = difflib.get_close_matches(name, CONDITIONS, n=1)
            raise _wrong(
                f"rules.{name}",
                "there is no such rule to switch off",
                f"those that are on by default are {', '.join(CONDITIONS)}",
                f'write "{close[0]}"' if close else "remove it",
            )
        return None
    fields = said.model_dump(exclude={"enabled"}, exclude_none=True)
    condition = said.condition or name
    if said.threshold is not None and condition in CONDITIONS:
        try:
            threshold_of(condition, said.threshold)
        except InvalidInput as error:
            raise _wrong(f"rules.{name}.threshold", error.what, error.why, error.fix) from error
    return fields


def _channel(name: str, said: ChannelSettings) -> ChannelSpec:
    place = f"channels.{name}"
    foreign = sorted(said.model_fields_set - _COMMON - _OWN[said.type])
    if foreign:
        own = sorted(_OWN[said.type])
        raise _wrong(
            f"{place}.{foreign[0]}",
            f'a channel of type "{said.type}" does not have it',
            f"its keys are {', '.join(own)}" if own else "it needs no keys",
            "remove it, or choose another type",
        )
    secrets = {key: _secret(place, key, said) for key in _SECRETS}
    for key, line in _NEEDS.get(said.type, {}).items():
        if not (secrets.get(key) or getattr(said, key)):
            raise _wrong(
                f"{place}.{key}", "it is missing", f'a channel of type "{said.type}" needs it', f"write {line}"
            )
    if said.type == FUNCTION:
        checked_name(said.handler or name, "task")
    return ChannelSpec(
        name=name,
        type=said.type,
        headers=said.headers,
        allow_private=said.allow_private,
        timeout=said.timeout,
        handler=(said.handler or name) if said.type == FUNCTION else "",
        host=said.host or "",
        port=said.port or _PORTS[said.security],
        security=said.security,
        user=said.user or "",
        sender=said.sender or "",
        to=said.to,
        **secrets,
    )


def _secret(place: str, key: str, said: ChannelSettings) -> str:
    """The value itself, or the first line of the file that is named."""
    value, file = getattr(said, key), getattr(said, f"{key}{_FILE}")
    if value is not None and file is not None:
        raise _wrong(f"{place}.{key}", f"{key}{_FILE} is set too", "there can be only one of them", "remove one")
    if file is None:
        return str(value or "")
    try:
        found = Path(file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise _wrong(f"{place}.{key}{_FILE}", f"{file} cannot be read", why, "check the path and its rights") from error
    if key == "url":
        _url(found)
    return found


def _wrong(key: str, what: str, why: str, fix: str) -> InvalidInput:
    return InvalidInput(f"{ALERTS}.{key} cannot be used: {what}", why=why, fix=fix)
