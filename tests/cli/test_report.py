"""`pitboss report` on a real store: one page with everything, and nothing that a browser would load or run."""

import re
from pathlib import Path

from pitboss.cli.errors import Exit
from tests.cli.command_line import GREET, new, pitboss, put, run_all
from tests.cli.test_figures import fill
from tests.http.web.pages import HOSTILE, inline


def test_a_report_shows_queues_failures_charts_and_the_verdict() -> None:
    put(*(new() for _ in range(5)))
    run_all()
    put(*(new() for _ in range(3)))
    run_all(fail="the printer is on fire")
    fill(1, 2)
    answer = pitboss("report", "--since", "1h", "--out", "week.html")
    assert (answer.code, answer.out.partition(":")[0]) == (0, "week.html")
    page = Path("week.html").read_text()
    assert "8: 5 completed, 3 failed (62 % completed)" in page
    assert "OSError: the printer is on fire" in page
    assert '<th scope="row">default</th>' in page
    assert page.count("<svg") == 4
    assert "Unhealthy at the end" in page


def test_it_runs_and_loads_nothing_and_escapes_everything() -> None:
    put(new())
    run_all(fail=HOSTILE)
    page = pitboss("report", "--out", "-").out
    assert "&lt;script&gt;alert(1)" in page
    assert inline(page.replace("<style>", "<b>")) == []
    assert not re.search(r"<script|<img|<link|url\(", page)


def test_a_store_with_nothing_gives_a_report_too() -> None:
    put()
    page = pitboss("report", "--out", "-").out
    assert "No task failed for good." in page
    assert "No worker ran." in page


def test_a_file_that_cannot_be_written_is_told() -> None:
    put(handlers=(GREET,))
    answer = pitboss("report", "--out", "nowhere/report.html")
    assert answer.code == Exit.USAGE
    assert "the report cannot be written to nowhere/report.html" in answer.err
    assert "No such file" in answer.err
