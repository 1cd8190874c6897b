"""`pitboss help`: pages that belong to no single command."""

from typing import Annotated, Any

import typer

from pitboss.cli.command import screen_of
from pitboss.cli.errors import Exit
from pitboss.cli.main import loaded
from pitboss.model.errors import NotFound

FILTERS = """\
Filters choose tasks, the same in every command:

  pitboss tasks list state:failed queue:mail
  pitboss tasks list 'task:fetch*' 'age:<1h' -tag:test
  pitboss tasks retry state:failed error:ConnectTimeout

  state:failed,cancelled   held scheduled pending running completed failed cancelled
  queue:mail               the queue
  task:fetch*              the handler's name; * stands for any characters
  tag:eu                   one of the task's tags
  id: parent:              the id of the task, or of the task that enqueued it
  error:TimeoutError       type or category of the last error
  fingerprint:9f86d081884c the group of failures with one cause, as in pitboss dead list
  reason: worker: key:     why it is in its state, the worker that ran it, its unique key
  batch: resource:         the id of its batch; the member that it held last, as in resource:proxies/*
  partition:CA             the key of a task in a queue with partitions
  order:customer-7         the order key of tasks that run one at a time
  args.shop.id:123         a value in its params
  attempts:>2 priority:<0 progress:>=50 losses:>0 session:7
  age:>1h finished:<1h     time since it was enqueued, and since it ended
  wait:>5m ran:>30s        how long it waited after it was due; how long its last run took, or takes so far
  "some text"              in handler, params, reason or error message

All terms must match; a comma means "or" within a field; a leading minus means "not".
Quote * < > for your shell.

Lists take no longer when more is stored: they read by state, queue, batch, resource, partition,
id, age and end, and failed tasks by task and fingerprint. Other terms, such as text, args and tags,
are compared with 20,000 tasks at a time: then the list says so, and how to go on."""

JSON = """\
--json prints one document on stdout: {"version": 1, ...}. Messages stay on stderr.
Moments are RFC 3339 in UTC, spans are seconds, params and results are JSON values.
Within a version, fields may be added; none is removed or changes its meaning.
With --watch, each line is one document."""

COMPLETION = """\
Complete commands and options with the Tab key:

  pitboss --install-completion     for your shell (bash, zsh, fish, PowerShell); then open a new one
  pitboss --show-completion        print the script, to install it yourself"""


def _exit_codes() -> str:
    rows = "\n".join(f"  {code:>3}  {code.meaning}" for code in Exit)
    return f"Exit codes:\n\n{rows}"


_TOPICS = {"exit-codes": _exit_codes(), "filters": FILTERS, "json": JSON, "completion": COMPLETION}


def help_command(
    context: typer.Context,
    topic: Annotated[list[str] | None, typer.Argument(metavar="TOPIC", help=", ".join(_TOPICS))] = None,
) -> None:
    """Explain a topic or a command.

    \b
    Examples:
      pitboss help exit-codes
      pitboss help filters
      pitboss help tasks list
    """
    screen = screen_of(context)
    words = topic or []
    name = "-".join(words)
    if not words:
        screen.line(context.find_root().get_help())
        screen.line(f"\nTopics: {', '.join(_TOPICS)}.  See: pitboss help TOPIC")
    elif name in _TOPICS:
        screen.line(_TOPICS[name])
    else:
        screen.line(_help_of(context, words))


def _help_of(context: typer.Context, words: list[str]) -> str:
    place: Any = context.find_root()
    make: Any = type(place)
    for word in words:
        command = getattr(place.command, "commands", {}).get(word)
        if command is not None and place.parent is None:
            command = loaded(word)
        if command is None:
            raise NotFound(
                f'there is no topic and no command "{" ".join(words)}"',
                why=f"the topics are {', '.join(_TOPICS)}",
                fix="pitboss --help lists the commands",
            )
        place = make(command, info_name=word, parent=place)
    return str(place.get_help())
