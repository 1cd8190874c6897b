"""`pitboss resources add` and `import`: members for a resource pool, with secrets kept off the command line."""

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pitboss.cli.auditing import acting
from pitboss.cli.command import DryRunOption, StoreOption, screen_of, store_app
from pitboss.cli.progress import counting
from pitboss.cli.screen import Screen
from pitboss.model.errors import InvalidInput
from pitboss.model.queue import checked_name
from pitboss.model.resource import checked_labels
from pitboss.model.resource_files import SECRET_NAMES, checked_member_name, hides_password, is_address, read_address
from pitboss.model.text import counted

if TYPE_CHECKING:
    from pitboss.client.resources import Resources
    from pitboss.model.resource_files import Row

PoolArgument = Annotated[str, typer.Argument(metavar="POOL", help="The resource pool; created if it does not exist.")]
LabelsOption = Annotated[list[str] | None, typer.Option("--label", help="May be repeated.")]
NewKeyOption = Annotated[
    bool, typer.Option("--new-key", help="The key of the other secrets is lost: begin with a new one.")
]
_FORMATS = ("auto", "lines", "urls", "csv")
_GROUP = 500
_SAMPLE = 5
_SECRET_SEEN = (
    "note: other users of this host can read a secret on the command line, and the shell's history keeps it; "
    "give only its name to be asked for it"
)


def add(
    context: typer.Context,
    pool: PoolArgument,
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="Its name; or its address, then its name is host:port."),
    ],
    url: Annotated[
        str | None, typer.Option("--url", metavar="URL", help="Its address, such as http://10.0.0.7:8080.")
    ] = None,
    fields: Annotated[
        list[str] | None, typer.Option("--field", metavar="K=V", help="Not secret; may be repeated.")
    ] = None,
    secrets: Annotated[
        list[str] | None,
        typer.Option(
            "--secret", metavar="K", help="Typed when asked, or a line of stdin; stored sealed. May be repeated."
        ),
    ] = None,
    from_variables: Annotated[
        list[str] | None, typer.Option("--secret-env", metavar="K=VAR", help="A secret from the environment.")
    ] = None,
    labels: LabelsOption = None,
    weight: Annotated[int, typer.Option("--weight", min=1, help="For the weighted strategy.")] = 100,
    new_key: NewKeyOption = False,
    store: StoreOption = None,
) -> None:
    """Add a member to a pool, or change the one of that name.

    \b
    Examples:
      pitboss resources add proxies 10.0.0.7:8080
      pitboss resources add proxies p1 --url http://10.0.0.7:8080 --field user=ann --secret password
      pitboss resources add accounts ann --secret cookie --label eu < cookie.txt
      pitboss resources add keys k1 --secret-env token=API_TOKEN
    """
    screen = screen_of(context)
    _check_pool(pool)
    name, address = _named(name, url)
    checked_member_name(name)
    open_fields, closed = _address(screen, address)
    open_fields |= dict(_open(text) for text in fields or ())
    closed |= _secrets(screen, secrets or (), from_variables or ())
    # A field that is also given as a secret, such as the user in the URL, is secret.
    open_fields = {key: value for key, value in open_fields.items() if key not in closed}
    checked_labels(tuple(labels or ()))
    audit = acting(context, f"{pool}/{name}", fields=sorted(open_fields), secrets=sorted(closed))
    with store_app(screen, store, audit) as app:
        if new_key:
            app.ring().make()
        known = app.resources(pool)
        new = known.add(name, open_fields, closed, labels=labels or (), weight=weight)
    sealed = f" with {', '.join(sorted(closed))} sealed" if closed else ""
    screen.note(f"{pool}/{name} is {'added' if new else 'changed'}{sealed}")


def import_file(
    context: typer.Context,
    pool: PoolArgument,
    file: Annotated[str, typer.Argument(metavar="FILE", help="One member per line; - reads stdin.")],
    form: Annotated[str, typer.Option("--format", metavar="FORMAT", help="auto, lines, urls or csv.")] = "auto",
    labels: LabelsOption = None,
    new_key: NewKeyOption = False,
    store: StoreOption = None,
    dry: DryRunOption = False,
) -> None:
    """Add the members of a file: host:port:user:password lines, URLs, or CSV with a header.

    \b
    Examples:
      pitboss resources import proxies proxies.txt --dry-run
      pitboss resources import proxies proxies.csv --format csv --label eu
      fetch-list | pitboss resources import proxies -
    """
    screen = screen_of(context)
    _check_pool(pool)
    checked_labels(tuple(labels or ()))
    rows = _read(file, form)
    if dry:
        _tell_dry(screen, pool, rows)
        return
    with store_app(screen, store, acting(context, pool, members=len(rows))) as app:
        if new_key:
            app.ring().make()
        new = _add_all(screen, app.resources(pool), rows, labels or ())
    screen.note(f"{counted(new, 'member')} added to {pool}, {len(rows) - new:,} changed")


def _read(file: str, form: str) -> list["Row"]:
    from pathlib import Path

    from pitboss.model.resource_files import read_rows

    if form not in _FORMATS:
        raise InvalidInput(
            f"{form!r:.40} is not a format", why=f"the formats are {', '.join(_FORMATS)}", fix="leave --format out"
        )
    where = "stdin" if file == "-" else file
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(
            f"{where} cannot be read",
            why=getattr(error, "strerror", None) or "it is not text in UTF-8",
            fix="check the path and the permissions of the file; - reads stdin",
        ) from error
    _check_format(text, form, where)
    return read_rows(text, where)


def _check_format(text: str, form: str, where: str) -> None:
    """Refuse lines of another format. The error shows only the line's number: the line may hold a secret."""
    numbered = [(number, line.strip()) for number, line in enumerate(text.splitlines(), start=1)]
    lines = [(number, line) for number, line in numbered if line and not line.startswith("#")]
    wrong: Iterable[int] = ()
    if form == "urls":
        wrong = (number for number, line in lines if "://" not in line)
    elif form == "lines":
        wrong = (number for number, line in lines if "://" in line or "," in line)
    elif form == "csv" and lines and "," not in lines[0][1] and ":" in lines[0][1]:
        wrong = (lines[0][0],)
    first = next(iter(wrong), None)
    if first is not None:
        raise InvalidInput(
            f"line {first} of {where} is not of the format {form}",
            why={"urls": "a URL has ://", "csv": "the first line of CSV names the columns"}.get(
                form, "a line is host:port or host:port:user:password"
            ),
            fix="correct it, or leave --format out; nothing was added",
        )


def _add_all(screen: Screen, pool: "Resources", rows: list["Row"], labels: Sequence[str]) -> int:
    new = 0
    with counting(screen, f"Import into {pool.name}", len(rows), shown=len(rows) > _GROUP) as done:
        for start in range(0, len(rows), _GROUP):
            group = rows[start : start + _GROUP]
            new += pool.add_many([_member(row, labels) for row in group])
            done(start + len(group))
    return new


def _member(row: "Row", labels: Sequence[str]) -> dict[str, Any]:
    return {
        "name": row.name,
        "fields": row.fields,
        "secrets": row.secrets,
        "labels": (*row.labels, *labels),
        "weight": row.weight,
    }


def _tell_dry(screen: Screen, pool: str, rows: list["Row"]) -> None:
    for row in rows[:_SAMPLE]:
        secrets = f"  ({', '.join(f'{key} ***' for key in sorted(row.secrets))})" if row.secrets else ""
        screen.note(f"  {pool}/{row.name}{secrets}")
    if len(rows) > _SAMPLE:
        screen.note(f"  … and {len(rows) - _SAMPLE:,} more")
    screen.note(f"would add or change {counted(len(rows), 'member')}; nothing was changed")


def _check_pool(pool: str) -> None:
    if hides_password(pool):
        raise InvalidInput(
            "the name of the pool looks like an address with a password",
            why="the pool comes first, then the member",
            fix="say pitboss resources add POOL ADDRESS",
        )
    checked_name(pool, "resource pool")


def _named(name: str, url: str | None) -> tuple[str, "Row | None"]:
    """The member's name, and its address: of --url, or given instead of a name."""
    if url is not None:
        return name, read_address(url, "--url")
    if not is_address(name):
        return name, None
    row = read_address(name, "NAME")
    return row.name, row


def _address(screen: Screen, row: "Row | None") -> tuple[dict[str, Any], dict[str, str]]:
    """The parts of an address as fields, and its password as a secret."""
    if row is None:
        return {}, {}
    if row.secrets:
        screen.note(_SECRET_SEEN)
    return {"scheme": "http"} | row.fields, dict(row.secrets)


def _secrets(screen: Screen, named: Sequence[str], from_variables: Sequence[str]) -> dict[str, str]:
    from pitboss import config

    found = dict(_pair(text, "--secret") for text in named if "=" in text)
    if found:
        screen.note(_SECRET_SEEN)
    for text in from_variables:
        key, variable = _pair(text, "--secret-env")
        value = config.inherited().get(variable)
        if not value:
            raise InvalidInput(
                f"the variable of --secret-env {key} is not set",
                why=f'after the = stands the name of the variable that holds the secret "{key}"',
                fix=f"export it first, or say --secret {key} to be asked for it",
            )
        found[key] = value
    for key in (text for text in named if "=" not in text):
        _check_key(key, "--secret")
        found[key] = typer.prompt(key, hide_input=True, err=True) if screen.interactive else _line(key)
    return found


def _line(key: str) -> str:
    value = sys.stdin.readline().rstrip("\r\n")
    if not value:
        raise InvalidInput(
            f'the secret "{key}" was not given',
            why="stdin is not a terminal, and has no line left for it",
            fix=f"pipe one line per secret, or use --secret-env {key}=VARIABLE",
        )
    return value


def _open(text: str) -> tuple[str, str]:
    key, value = _pair(text, "--field")
    if key.lower() in SECRET_NAMES:
        raise InvalidInput(
            f'the field "{key}" would be stored and shown in the clear',
            why="its name says that it is a secret",
            fix=f"say --secret {key}, and type it when asked",
        )
    return key, value


def _pair(text: str, option: str) -> tuple[str, str]:
    key, sign, value = text.partition("=")
    _check_key(key, option)
    if not sign:
        raise InvalidInput(
            f"{option} {key!r:.40} has no value", why="it is a name, =, and a value", fix=f"say {option} name=value"
        )
    return key, value


def _check_key(key: str, option: str) -> None:
    """Refuse what is no name, without a word of it: it may be a part of a password."""
    what = "field" if option == "--field" else "secret"
    try:
        checked_member_name(key)
    except InvalidInput as error:
        why = "names are letters, digits and _ . : - and begin with a letter, digit or _"
        raise InvalidInput(
            f"what follows {option} does not begin with the name of a {what}",
            why=why,
            fix=f"say {option} {'name=value' if what == 'field' else 'name'}",
        ) from error.__cause__
