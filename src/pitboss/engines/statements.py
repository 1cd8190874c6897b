"""SQL (and Lua) stands in files, one statement each; code knows them by name."""

from importlib.resources import files


def load(package: str, suffix: str = ".sql") -> dict[str, str]:
    """Every statement of a folder, by file name without its ending."""
    return {
        entry.name.removesuffix(suffix): entry.read_text(encoding="utf-8")
        for entry in files(package).iterdir()
        if entry.name.endswith(suffix)
    }
