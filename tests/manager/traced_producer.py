"""A program with OpenTelemetry: `python -m tests.manager.traced_producer URL` enqueues, and prints its spans."""

import json
import sys

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.manager.traced import app, failing, first, second, wavering


def told(span: ReadableSpan) -> dict[str, object]:
    context = span.get_span_context()
    assert context is not None
    return {
        "name": span.name,
        "kind": span.kind.name,
        "trace": trace.format_trace_id(context.trace_id),
        "id": trace.format_span_id(context.span_id),
        "parent": None if span.parent is None else trace.format_span_id(span.parent.span_id),
        "attributes": dict(span.attributes or {}),
    }


def main() -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    app.use(sys.argv[1])
    with trace.get_tracer("shop").start_as_current_span("checkout"):
        first.enqueue(1)
        failing.enqueue()
        wavering.enqueue()
        second.using(delay="2s").enqueue_many([{"number": 2}, {"number": 3}])
        app.send("second", {"number": 4})
    app.close()
    sys.stdout.write(json.dumps([told(span) for span in exporter.get_finished_spans()]))


if __name__ == "__main__":
    main()
