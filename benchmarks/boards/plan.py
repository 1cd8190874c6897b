"""The jobs that every dashboard holds. Standard library only: the peers' environments import it."""

from collections.abc import Iterator
from itertools import islice
from typing import TypedDict

WORD = "needle"
HITS = 10
PAGE = 1000


class Params(TypedDict):
    """A job that is not `good` fails."""

    n: int
    word: str
    good: bool


def jobs(tasks: int) -> Iterator[Params]:
    """As many good ones (a multiple of 100), and after every ten one that fails. HITS good ones have the word, evenly
    spread; the last is the oldest job."""
    total = tasks + tasks // 10
    for n in range(total):
        yield {"n": n, "word": "hay" if n % (total // HITS) else WORD, "good": n % 11 != 10}


def pages(tasks: int) -> Iterator[list[Params]]:
    """The jobs, a thousand at once."""
    every = jobs(tasks)
    while page := list(islice(every, PAGE)):
        yield page
