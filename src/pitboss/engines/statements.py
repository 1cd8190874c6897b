"""SQL (and Lua) stands in files, one per table or subject; code knows each statement by its name."""

import re
from importlib.resources import files

_NAME = re.compile(r"^-- name: (\w+)[ \t]*\n", re.MULTILINE)


def load(package: str, suffix: str = ".sql") -> dict[str, str]:
    """Every statement of a folder by name: what follows `-- name: x`, or a whole file without such lines."""
    found: dict[str, str] = {}
    for entry in sorted(files(package).iterdir(), key=lambda entry: entry.name):
        if not entry.name.endswith(suffix):
            continue
        for name, text in _named(entry.name.removesuffix(suffix), entry.read_text(encoding="utf-8")):
            if name in found:
                raise ValueError(f'{package} has two statements named "{name}", one in {entry.name}')
            found[name] = text
    return found


def _named(file: str, text: str) -> list[tuple[str, str]]:
    head, *parts = _NAME.split(text)
    if not parts:
        return [(file, text)]
    if head.strip():
        raise ValueError(f"{file}: there is a statement before the first name")
    return list(zip(parts[::2], parts[1::2], strict=True))
