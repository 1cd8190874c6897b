"""`pitboss report`: what happened, as one page that can be mailed."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from pitboss.cli.command import StoreOption, ask, now, screen_of, settings
from pitboss.model.duration import span, spoken
from pitboss.model.errors import InvalidInput
from pitboss.model.pool import spoken_size
from pitboss.model.text import masked
from pitboss.operate.report import Report, read_report

if TYPE_CHECKING:
    from pitboss.engines.protocol import FullStore, Store


def report(
    context: typer.Context,
    since: Annotated[str, typer.Option("--since", metavar="TIME", help="How far back, such as 24h or 7d.")] = "24h",
    out: Annotated[
        str, typer.Option("--out", "-o", metavar="FILE", help="The file to write; - writes to standard output.")
    ] = "pitboss-report.html",
    store: StoreOption = None,
) -> None:
    """Write a page with charts of what happened, to mail or to keep.

    It has the verdict, charts of tasks and resource pools, queues, failures by cause, workers and troubles. The page is
    one HTML file without scripts.

    \b
    Examples:
      pitboss report
      pitboss report --since 7d --out week.html
    """
    from pitboss.http.web.report import report_page

    screen, back = screen_of(context), span(since, what="--since")

    async def read(opened: "Store") -> Report:
        return await read_report(cast("FullStore", opened), now(opened), back)

    found = ask(screen, store, read)
    page = report_page(found, masked(settings(screen, store=store).settings.store))
    if out == "-":
        typer.echo(page)
        return
    try:
        Path(out).write_text(page, encoding="utf-8")
    except OSError as error:
        raise InvalidInput(
            f"the report cannot be written to {out}",
            why=error.strerror or str(error),
            fix="name another file with --out",
        ) from None
    screen.line(f"{out}: the last {spoken(back)} in {spoken_size(len(page.encode()))}")
