"""`pitboss doctor`: looks at settings, app, store, host and managers, and says what to mend."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import typer

from pitboss.cli.exits import Exit
from pitboss.cli.options import JsonOption, StoreOption, screen_of
from pitboss.cli.screen import Screen
from pitboss.cli.words import counted
from pitboss.model.finding import Finding, Grade

_WIDTH = 12
_STYLES = {Grade.OK: "green", Grade.WARNING: "yellow", Grade.PROBLEM: "bold red"}


def doctor(context: typer.Context, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Look for what is wrong, or about to be.

    \b
    Examples:
      pitboss doctor
      pitboss doctor --store postgresql://user@host/jobs --json

    Checks settings, app, store, host and managers. Exits with 6 if there is a problem; warnings alone do not.
    """
    screen = screen_of(context)
    findings = _findings(store)
    if as_json:
        screen.document(_document(findings))
    else:
        _draw(screen, findings)
    if any(finding.grade is Grade.PROBLEM for finding in findings):
        raise typer.Exit(Exit.UNHEALTHY)


def _findings(store: str | None) -> list[Finding]:
    import asyncio
    from importlib import metadata

    from pitboss.cli import checks

    found, findings = checks.of_settings(store)
    if found is None:
        return findings
    inside = asyncio.run(checks.of_store(found, metadata.version("pitboss")))
    description, about = checks.of_app(found)
    return [*findings, *about, *checks.of_host(found, description), *inside]


def _document(findings: Sequence[Finding]) -> dict[str, Any]:
    import msgspec

    counts = Counter(finding.grade for finding in findings)
    return {
        "problems": counts[Grade.PROBLEM],
        "warnings": counts[Grade.WARNING],
        "checks": [msgspec.to_builtins(finding) for finding in findings],
    }


def _draw(screen: Screen, findings: Sequence[Finding]) -> None:
    for finding in findings:
        first, *more = finding.what.split("\n")
        screen.line(f"{finding.grade:<8} {finding.check:<{_WIDTH}} {first}", _STYLES[finding.grade])
        for line in more:
            screen.line(f"{'':<{_WIDTH + 9}} {line}")
        for label, text in (("why", finding.why), ("fix", finding.fix)):
            if text:
                screen.line(f"{'':<{_WIDTH + 9}} {label}: {text}")
    counts = Counter(finding.grade for finding in findings)
    screen.line()
    screen.line(
        f"{counted(len(findings), 'check')}: {counted(counts[Grade.PROBLEM], 'problem')}, "
        f"{counted(counts[Grade.WARNING], 'warning')}"
    )
