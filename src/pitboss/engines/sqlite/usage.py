"""How much room the file takes. Pages of deleted rows are used again; when there are many, the file shrinks."""

import shutil
from pathlib import Path

from pitboss.engines.sqlite.act import Act
from pitboss.engines.sqlite.readers import Reader
from pitboss.engines.sqlite.registry import check_term
from pitboss.model.usage import StoreUsage


def usage(reader: Reader, path: Path) -> StoreUsage:
    """Pages that can be used again count as free space of the disk."""
    ((refusing, page, pages, unused),) = reader.rows("usage_get")
    free = shutil.disk_usage(path.parent).free + unused * page
    return StoreUsage(size=(pages - unused) * page, free=free, refusing=refusing)


def refuse_new(act: Act, reason: str | None, term: int) -> None:
    """As the contract says."""
    check_term(act, term)
    act.run("refusing_set", reason)
