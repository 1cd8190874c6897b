"""`pitboss views`."""

from pathlib import Path

from pitboss.cli.errors import Exit
from tests.cli.command_line import new, pitboss, put


def test_views_are_saved_listed_and_removed(folder: Path) -> None:
    put(new())
    assert pitboss("views", "list").err.startswith("no view is saved")
    saved = pitboss("views", "save", "Late ones", "state:pending", "wait:>5m", "-tag:test")
    assert saved.err == 'view "Late ones" is saved: state:pending wait:>5m -tag:test\n'
    pitboss("views", "save", "mine", "queue:mail", "--of", "ana")
    listed = pitboss("views", "list", "--json").json()["views"]
    assert [(one["name"], one["owner"], one["shared"]) for one in listed] == [
        ("Late ones", None, True),
        ("mine", "ana", False),
    ]
    assert "state:pending wait:>5m -tag:test" in pitboss("views", "list").out
    assert pitboss("views", "remove", "mine").code == Exit.NOT_FOUND
    assert pitboss("views", "remove", "mine", "--of", "ana").code == 0
    acts = [one["act"] for one in pitboss("audit", "--json").json()["entries"]]
    assert acts == ["views remove", "views save", "views save"]
