"""What is sent through a channel: a message as a value, as text, as JSON, and as Slack takes it; and its signature."""

import hmac
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from hashlib import sha256
from typing import Any, Literal

import msgspec

from pitboss.model.alert import Severity
from pitboss.model.canonical import Json, to_json
from pitboss.model.duration import SECOND, Moment, Span, spoken
from pitboss.model.ids import derived_id
from pitboss.model.policy import Backoff, Policy
from pitboss.model.queue import RESERVED, HandlerInfo
from pitboss.model.task import NewTask
from pitboss.model.text import counted, one_line

_HANDLER = f"{RESERVED}alerts."
SIGNATURE = "X-Pitboss-Signature"
LOG = "log"
FUNCTION = "function"
# Tried until the channel takes it, an operator cancels it, or it expires: those that follow wait for it. `alerts test`
# is tried once.
POLICY = Policy(max_attempts=1_000_000_000, backoff=Backoff(base=5 * SECOND, factor=3.0, cap=300 * SECOND))
EXPIRES_IN: Span = 86_400 * SECOND
_MARKS = {Severity.HIGH: ":red_circle:", Severity.MEDIUM: ":large_orange_circle:", Severity.LOW: ":white_circle:"}
_LONGEST_LINE = 500


class Kind(StrEnum):
    """Why it is sent. `store` is told by a manager that does not reach its store, and when it is back."""

    ALERT = "alert"
    DIGEST = "digest"
    RESOLVED = "resolved"
    STORE = "store"
    TEST = "test"


class AlertLine(msgspec.Struct, frozen=True, kw_only=True):
    """One alert in a message. `again`: how often more it has fired since the channel was told last; `more`: how much of
    what its condition counts has happened since. `since` is by the store's clock in the leader, and by the wall clock
    in what is sent."""

    rule: str
    severity: Severity
    firing: bool
    about: str
    condition: str = ""
    since: Moment = 0
    again: int = 0
    more: int = 0

    @property
    def text(self) -> str:
        about = one_line(self.about, _LONGEST_LINE)
        if self.firing:
            parts = [f"{self.rule} ({self.severity}) firing: {about}"]
        else:
            parts = [f"{self.rule} ({self.severity}) resolved: over since {_clock(self.since)}"]
            parts += [f"it was: {about}"] if about else []
        if self.more:
            parts.append(f"{self.more:,} more since the last message")
        if self.again:
            parts.append(f"it fired {counted(self.again, 'more time')}")
        return "; ".join(parts)


class AlertMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message. `number` counts those of its channel, `within` is how long ago the last one was sent."""

    kind: Kind
    at: Moment = 0
    number: int = 0
    lines: tuple[AlertLine, ...] = ()
    within: Span = 0
    store: str = ""

    def by_wall(self, ahead: Span, store: str) -> "AlertMessage":
        """The same with times of the wall clock, and with a name of the store for people."""
        lines = tuple(msgspec.structs.replace(one, since=one.since + ahead) for one in self.lines)
        return msgspec.structs.replace(self, at=self.at + ahead, lines=lines, store=store)

    @property
    def title(self) -> str:
        firing = [one for one in self.lines if one.firing]
        match self.kind:
            case Kind.TEST:
                return "Pitboss: a test message"
            case Kind.RESOLVED:
                return "Pitboss: resolved"
            case Kind.DIGEST:
                return f"Pitboss: {counted(len(firing), 'alert')} firing; what is new of the last {spoken(self.within)}"
            case Kind.STORE:
                return f"Pitboss: {'the store does not answer' if firing else 'the store is back'}"
        more = f" and {len(firing) - 1} more" if firing[1:] else ""
        return f"Pitboss: {firing[0].rule}{more}" if firing else "Pitboss: alerts"

    @property
    def subject(self) -> str:
        """The title, and which store it is about."""
        return f"{self.title} ({one_line(self.store, _LONGEST_LINE)})" if self.store else self.title

    @property
    def footer(self) -> str:
        """Its number and its time, by which the messages of a channel can be told apart."""
        return f"{f'message {self.number}, ' if self.number else ''}{_clock(self.at)}"

    @property
    def text(self) -> str:
        """The whole message for people."""
        return "\n".join([self.subject, *(one.text for one in self.lines), self.footer])


def document(message: AlertMessage) -> dict[str, Any]:
    """The message as a webhook and a function get it."""
    return {
        "kind": message.kind.value,
        "title": message.title,
        "text": message.text,
        "at": _date(message.at),
        "number": message.number,
        "store": message.store,
        "alerts": [
            {
                "rule": one.rule,
                "condition": one.condition,
                "severity": one.severity.value,
                "state": "firing" if one.firing else "resolved",
                "about": one.about,
                "since": _date(one.since),
                "more": one.more,
                "fired_again": one.again,
            }
            for one in message.lines
        ],
    }


def slack_document(message: AlertMessage) -> dict[str, Any]:
    """The message in the form of Slack's incoming webhooks, which Mattermost and others take too."""
    lines = [
        f"{_MARKS[one.severity] if one.firing else ':white_check_mark:'} {_escaped(one.text)}" for one in message.lines
    ]
    return {"text": "\n".join([f"*{_escaped(message.subject)}*", *lines, message.footer])}


def signature(secret: str, body: bytes, seconds: int) -> str:
    """The value of the header: who knows the secret can check that the body is ours, and when it was sent."""
    digest = hmac.new(secret.encode(), f"{seconds}.".encode() + body, sha256).hexdigest()
    return f"t={seconds},v1={digest}"


class ChannelSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The table [alerts.channels.NAME], complete. `secrets` may not be shown: the url of Slack is one."""

    name: str
    type: Literal["log", "webhook", "email", "slack", "function"]
    url: str = ""
    secret: str = ""
    headers: Mapping[str, str] = {}
    allow_private: bool = False
    timeout: Span = 10 * SECOND
    handler: str = ""
    host: str = ""
    port: int = 0
    security: Literal["starttls", "tls", "none"] = "starttls"
    user: str = ""
    password: str = ""
    sender: str = ""
    to: Sequence[str] = ()

    @property
    def outside(self) -> bool:
        """Whether the delivery process sends its messages: not the log, and not a function, which runs on a worker."""
        return self.type not in (LOG, FUNCTION)

    def info(self, app: str) -> HandlerInfo:
        """The reserved handler of its messages, as it is registered by this app."""
        about = msgspec.json.encode({"alert_channel": self.name, "app": app}).decode()
        policy = msgspec.json.encode(POLICY).decode()
        name = alert_handler(self.name)
        return HandlerInfo(name=name, queue=name, policy=policy, remote=True, about=about)


def alert_handler(channel: str) -> str:
    """The reserved handler of a channel's messages, and its queue: a channel that hangs delays no other one."""
    return f"{_HANDLER}{channel}"


def alert_task(channel: str, message: AlertMessage, moment: Moment) -> NewTask:
    """The message as a task of its channel. The same message is the same task, however often it is put. Messages are
    sent in their order; a test waits for none."""
    params = to_json({"message": msgspec.to_builtins(message)})
    task_id = derived_id(moment, "alert", channel, message.kind.value, message.number)
    name = alert_handler(channel)
    return NewTask(
        id=task_id,
        handler=name,
        queue=name,
        params=params,
        order_key=None if message.kind is Kind.TEST else name,
        expires_in=EXPIRES_IN,
    )


def read_message(params: Json) -> AlertMessage:
    return msgspec.json.decode(params, type=_Params).message


class _Params(msgspec.Struct, frozen=True):
    message: AlertMessage


def is_alert_handler(handler: str) -> bool:
    return handler.startswith(_HANDLER)


def _date(moment: Moment) -> str:
    return datetime.fromtimestamp(moment / SECOND, UTC).isoformat(timespec="seconds")


def _clock(moment: Moment) -> str:
    return f"{datetime.fromtimestamp(moment / SECOND, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
