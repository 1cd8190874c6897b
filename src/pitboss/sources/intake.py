"""Makes a task of a message, or says why that cannot be done."""

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from pitboss.model.canonical import MAX_PARAMS_BYTES, Json
from pitboss.model.errors import InvalidInput
from pitboss.model.ids import TaskId
from pitboss.model.message import (
    Message,
    OutMessage,
    arguments,
    dead_task_id,
    marked,
    refused,
    stored,
    takes_whole,
    without_labels,
)
from pitboss.model.source import SourceSpec, message_key
from pitboss.model.task import NewTask, Unique
from pitboss.model.want_template import template_in_schema
from pitboss.operate.task_types import TaskType


class Taken(NamedTuple):
    """What becomes of a message: a task, of the handler or (if it is malformed) of the outbox; or, if it is too large
    for the store, a message that must go to the dead-letter queue before this one is acknowledged. `dead` is the failed
    task that it was, if it is a dead letter that came back: that task runs again, if it is still there."""

    tag: int
    task: NewTask | None = None
    malformed: bool = False
    too_large: OutMessage | None = None
    reason: str = ""
    dead: TaskId | None = None


class Intake:
    """The rule for one source and its handler as registered now."""

    def __init__(self, spec: SourceSpec, kind: TaskType, make_id: Callable[[], TaskId]) -> None:
        self._spec, self.kind, self._make_id = spec, kind, make_id
        self._whole = takes_whole(kind.info.schema)
        self._template = template_in_schema(kind.info.schema)

    def take(self, message: Message) -> Taken:
        dead = dead_task_id(message.properties)
        if dead is not None:
            message = msgspec.structs.replace(message, properties=without_labels(message.properties))
        try:
            return Taken(message.tag, self.task(message, self._unique(message, dead)), dead=dead)
        except InvalidInput as error:
            return self._malformed(message, f"{error.what}: {error.why}" if error.why else error.what)

    def task(self, message: Message, unique: Unique | None) -> NewTask:
        """`InvalidInput` if the message is not JSON, does not fit the handler, or is too large."""
        params = self._params(message.body)
        # As `new_task`, for thousands a second.
        return NewTask(
            id=self._make_id(),
            handler=self._spec.handler,
            queue=self.kind.info.queue,
            params=params,
            unique=unique,
            want=None if self._template is None else self._template.want(params),
            meta=marked(message, self._spec.name, self._spec.queue),
        )

    def _params(self, body: bytes) -> Json:
        if len(body) > MAX_PARAMS_BYTES:
            raise InvalidInput(f"the message has {len(body):,} bytes", why=f"a task takes at most {MAX_PARAMS_BYTES:,}")
        try:
            value = msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidInput("the message is not JSON", why=str(error).removeprefix("JSON is malformed: ")) from error
        params = arguments(value, self._whole)
        if params is None:
            raise InvalidInput("the message is not a JSON object", why=f"it is {_kind(value)}")
        return self.kind.check(params)

    def _unique(self, message: Message, dead: TaskId | None) -> Unique | None:
        """The key has a period, or it would be free once its task ends, and a late redelivery would run again. A dead
        letter has a key of its own: the message's may still belong to the failed task, and it would be a repetition."""
        known = message.properties.message_id
        if not known or not self._spec.dedupe:
            return None
        return Unique(message_key(self._spec.name, known if dead is None else f"{known} {dead}"), self._spec.dedupe)

    def _malformed(self, message: Message, reason: str) -> Taken:
        spec = self._spec
        out = refused(message, reason, source=spec.name, handler=spec.handler, queue=spec.dead_letter_queue)
        try:
            params = stored(out)
        except InvalidInput:
            return Taken(message.tag, malformed=True, too_large=out, reason=reason)
        task = NewTask(id=self._make_id(), handler=self._spec.outbox, queue=self._spec.outbox, params=params)
        return Taken(message.tag, task, malformed=True, reason=reason)


def _kind(value: object) -> str:
    return {list: "a list", str: "text", bool: "true or false", type(None): "null"}.get(type(value), "a number")
