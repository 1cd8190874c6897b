"""Traces of OpenTelemetry: a span where a task is sent, one where it runs, and the context in between, in its meta.

A process takes part if its own code, or `configure`, has set a tracer provider. Nothing of OpenTelemetry is imported
before that: without it, each call costs a look into a dictionary.
"""

import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from importlib import metadata
from typing import TYPE_CHECKING, Any

from pitboss.model.canonical import Json
from pitboss.model.duration import SECOND
from pitboss.model.meta import trace_of, with_trace
from pitboss.model.outcome import Crashed, Failed, Outcome, Retry, Rotated, TimedOut
from pitboss.model.task import Claim, Placed, TaskError

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, Tracer

_API = "opentelemetry.trace"
_MOST_TEXT = 300
# A task that was due later than this after it was sent does not belong to the work that sent it: it is linked.
_AT_ONCE = SECOND
_FLUSH_MS = 3000
_log = logging.getLogger("pitboss.traces")


def active() -> bool:
    """Whether this process has a tracer provider."""
    api = sys.modules.get(_API)
    if api is None:
        return False
    provider = api.get_tracer_provider()
    return not isinstance(provider, api.ProxyTracerProvider | api.NoOpTracerProvider)


def configure() -> None:
    """Set a provider as the environment says (OTEL_…), if the SDK is installed and the app has set none."""
    if active():
        return
    try:
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        _log.warning(
            "no traces: the environment asks for them (OTEL_…), but %s cannot be imported; "
            "install opentelemetry-sdk and opentelemetry-exporter-otlp-proto-http, or unset the variables",
            error.name,
        )
        return
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)


def flush() -> None:
    """Send the spans that wait to be sent, before the process ends."""
    if active():
        provider: Any = sys.modules[_API].get_tracer_provider()
        force = getattr(provider, "force_flush", None)
        if force is not None:
            force(_FLUSH_MS)


def carried() -> dict[str, str]:
    """The context of this moment in the form of W3C; nothing if there is none."""
    if not active():
        return {}
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return carrier


def traced_meta(meta: Json | None) -> Json | None:
    """The meta of a task that is made now: it belongs to the present trace, or else to the one that it inherits."""
    carrier = carried()
    return with_trace(meta, carrier) if carrier else meta


class Sending:
    """The span of one call that stores tasks. This one is for a process without traces."""

    def __enter__(self) -> "Sending":
        return self

    def __exit__(self, *exc: object) -> None:
        return None

    def placed(self, placed: Sequence[Placed]) -> None:
        """Note where the tasks were placed."""


_UNTRACED = Sending()


def sending(queue: str, handler: str) -> Sending:
    return _TracedSending(queue, handler) if active() else _UNTRACED


class _TracedSending(Sending):
    def __init__(self, queue: str, handler: str) -> None:
        self._within = _span(f"send {queue}", "PRODUCER", _about("send", queue, handler))

    def __enter__(self) -> Sending:
        self._span = self._within.__enter__()
        return self

    def __exit__(self, *exc: Any) -> None:
        if exc[1] is not None:
            _failed(self._span, type(exc[1]).__name__, str(exc[1]))
        self._within.__exit__(None, None, None)

    def placed(self, placed: Sequence[Placed]) -> None:
        if len(placed) == 1:
            self._span.set_attribute("messaging.message.id", placed[0].id)
        else:
            self._span.set_attribute("messaging.batch.message_count", len(placed))


class Processing:
    """The span of one run of a task."""

    def __init__(self, span: "Span") -> None:
        self._span = span

    def ended(self, outcome: Outcome) -> None:
        self._span.set_attribute("pitboss.outcome", type(outcome).__name__.lower())
        error = _error(outcome)
        if error is not None:
            _failed(self._span, error.type or error.category, error.message)


@contextmanager
def processing(claim: Claim) -> Iterator[Processing]:
    """The run of a claim. It is a child of the span that sent the task, if it follows at once. A run that was meant for
    later, or is repeated, begins a trace of its own with a link to that span."""
    sent, later = _sent(claim), _is_later(claim)
    about = _about("process", claim.queue, claim.handler) | {
        "messaging.message.id": claim.id,
        "pitboss.task.attempt": claim.attempt,
    }
    if claim.batch is not None:
        about["pitboss.batch"] = claim.batch
    with _span(f"process {claim.handler}", "CONSUMER", about, sent, later=later) as span:
        yield Processing(span)


def _sent(claim: Claim) -> "Context | None":
    carrier = trace_of(claim.meta)
    if not carrier:
        return None
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator().extract(carrier)


def _is_later(claim: Claim) -> bool:
    repeated = claim.attempt > 1 or claim.losses > 0 or claim.rotations > 0
    return repeated or (claim.due_at is not None and claim.due_at - claim.created_at > _AT_ONCE)


def _span(
    name: str, kind: str, about: Mapping[str, str | int], parent: "Context | None" = None, *, later: bool = False
) -> "AbstractContextManager[Span]":
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, SpanKind, get_current_span

    links = list[Link]()
    if parent is not None and later:
        links.append(Link(get_current_span(parent).get_span_context()))
        parent = Context()
    return _tracer().start_as_current_span(
        name,
        context=parent,
        kind=SpanKind[kind],
        attributes=about,
        links=links,
        record_exception=False,
        set_status_on_exception=False,
    )


def _tracer() -> "Tracer":
    from opentelemetry.trace import get_tracer

    return get_tracer("pitboss", metadata.version("pitboss"))


def _about(operation: str, queue: str, handler: str) -> dict[str, str | int]:
    return {
        "messaging.system": "pitboss",
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": queue,
        "pitboss.task.name": handler,
    }


def _error(outcome: Outcome) -> TaskError | None:
    return outcome.error if isinstance(outcome, Failed | TimedOut | Rotated | Retry | Crashed) else None


def _failed(span: "Span", kind: str, message: str) -> None:
    from opentelemetry.trace import StatusCode

    span.set_attribute("error.type", kind)
    span.set_status(StatusCode.ERROR, message[:_MOST_TEXT])
