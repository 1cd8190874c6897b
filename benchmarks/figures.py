"""The figures of one system over the repetitions."""

import statistics
from typing import Any

Answer = dict[str, Any]
Results = dict[str, dict[str, list[Answer]]]

_WAYS = ("best", "1000", "one")
_CPU_PARTS = 4


class Figures:
    def __init__(self, phases: dict[str, list[Answer]]) -> None:
        self._phases = phases

    def all(self, phase: str, *way: str) -> list[float]:
        """One figure, from every repetition that has it."""
        found = []
        for answer in self._phases[phase]:
            value: Any = answer.get("sections")
            for step in way:
                value = value.get(step) if isinstance(value, dict) else None
            if isinstance(value, int | float):
                found.append(float(value))
        return found

    def median(self, phase: str, *way: str) -> float | None:
        found = self.all(phase, *way)
        return statistics.median(found) if found else None

    def best_way(self) -> str:
        """How end to end enqueues: many at once if the system can."""
        return next((way for way in _WAYS if self.all("enqueue", way, "rate")), "one")

    def cpu(self) -> dict[str, float]:
        """Processor time per task in µs, by part: enqueueing in the best way, and running."""
        parts = {
            "workers": self.median("drain", "drain", "cpu_per_task", "workers"),
            "server, running": self.median("drain", "drain", "cpu_per_task", "broker"),
        }
        way = self.best_way()
        count = self.median("enqueue", way, "count")
        for name, part in (("producer", "producer"), ("server, enqueueing", "broker")):
            spent = self.median("enqueue", way, "cpu", part)
            parts[name] = spent / count * 1e6 if spent is not None and count else None
        return {name: value for name, value in parts.items() if value is not None}

    def cpu_total(self) -> float | None:
        parts = self.cpu()
        return sum(parts.values()) if len(parts) == _CPU_PARTS else None

    def answers(self) -> list[Answer]:
        return [answer for answers in self._phases.values() for answer in answers]

    def total(self, key: str) -> int:
        """The sum of a count over all measurements."""
        return sum(section.get(key, 0) for answer in self.answers() for section in answer.get("sections", {}).values())

    def troubles(self) -> list[str]:
        """Measurements without a figure."""
        return [_trouble(answer) for answer in self.answers() if "sections" not in answer]

    def versions(self) -> str:
        found: dict[str, str] = next((answer["versions"] for answer in self.answers() if "versions" in answer), {})
        return ", ".join(f"{name} {version}" for name, version in found.items())

    def disturbed(self) -> int:
        return sum(bool(answer.get("disturbed")) for answer in self.answers())


def brief(answer: Answer) -> str:
    """One measurement as a line, printed while others are still to come."""
    if "sections" not in answer:
        return _trouble(answer)
    words = []
    for name, section in answer["sections"].items():
        shown = (("rate", "{:,.0f}/s"), ("p50_ms", "p50 {:.1f} ms"), ("p99_ms", "p99 {:.1f} ms"))
        words += [f"{name} {text.format(section[key])}" for key, text in shown if key in section]
        if "workers_percent" in section:
            words.append(f"idle {section['workers_percent']:.2f} %, server {section['broker_percent']:.2f} %")
        if section.get("lost") or section.get("twice"):
            words.append(f"LOST {section['lost']} TWICE {section['twice']}")
    strangers = max(section["foreign"] for section in answer["sections"].values())
    return ", ".join(words) + (f" (disturbed: {strangers:.1f} cores)" if answer.get("disturbed") else "")


def all_ran_once(results: Results) -> bool:
    """True if every task of every measurement ran exactly once."""
    every = [Figures(phases) for phases in results.values()]
    return not any(one.troubles() or one.total("lost") or one.total("twice") for one in every)


def _trouble(answer: Answer) -> str:
    return str(answer.get("error") or answer.get("stalled") or "no answer").strip()
