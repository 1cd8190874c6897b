"""Metrics as text, in the format of Prometheus or in OpenMetrics, whichever the one who asks prefers."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from pitboss.model.duration import SECOND
from pitboss.model.metrics import METRICS, Metric, MetricKind, Series
from pitboss.model.totals import LIMITS, Spread

_LIMITS = (*(str(limit / SECOND) for limit in LIMITS), "+Inf")
_MOST_KINDS = 4


class Text(NamedTuple):
    content_type: str
    body: bytes


class Exposition:
    """Writes values once for all who ask for the same format before the values change."""

    def __init__(self) -> None:
        self._values: Mapping[str, Sequence[Series]] | None = None
        self._written: dict[str, bytes] = {}

    def write(self, values: Mapping[str, Sequence[Series]], accept: str) -> Text:
        """`accept` is the header of the request; without one it is the text format that every version reads."""
        encode, content_type = choose_encoder(accept)
        if values is not self._values or len(self._written) >= _MOST_KINDS:
            self._values, self._written = values, {}
        body = self._written.get(content_type)
        if body is None:
            body = self._written[content_type] = encode(_Families(values))
        return Text(content_type, body)


class _Families(Collector):
    """What an encoder writes."""

    def __init__(self, values: Mapping[str, Sequence[Series]]) -> None:
        self._values = values

    def collect(self) -> Iterator[Family]:
        for name, metric in METRICS.items():
            if series := self._values.get(name):
                yield _family(metric, series)


def _family(metric: Metric, series: Iterable[Series]) -> Family:
    if metric.kind is MetricKind.HISTOGRAM:
        return _histogram(metric, series)
    made = CounterMetricFamily if metric.kind is MetricKind.COUNTER else GaugeMetricFamily
    family = made(metric.name, metric.help, labels=metric.labels)
    for one in series:
        assert not isinstance(one.value, Spread)
        family.add_metric(one.labels, one.value)
    return family


def _histogram(metric: Metric, series: Iterable[Series]) -> Family:
    family = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
    for one in series:
        assert isinstance(one.value, Spread)
        buckets = list(zip(_LIMITS, accumulate(map(float, one.value.counts)), strict=True))
        family.add_metric(one.labels, buckets, one.value.sum / SECOND)
    return family
