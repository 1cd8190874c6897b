"""A driver belongs to one package: refuse to import it anywhere else under src/pitboss.

import-linter checks the order of the packages. It cannot say "only this package" about a package that does not exist
yet, and needs ten lines per driver for one that does. Here it is one row.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "src"

ENGINES = ("memory", "sqlite", "postgres", "redis", "amqp")

# module -> the packages that may import it, directly or lazily or for types only
OWNERS: dict[str, tuple[str, ...]] = {
    "psycopg": ("pitboss.engines.postgres",),
    "psycopg_pool": ("pitboss.engines.postgres",),
    "sqlite3": ("pitboss.engines.sqlite",),
    "redis": ("pitboss.engines.redis",),
    "hiredis": ("pitboss.engines.redis",),
    "pika": ("pitboss.engines.amqp",),
    "fastapi": ("pitboss.http",),
    "starlette": ("pitboss.http",),
    "uvicorn": ("pitboss.http",),
    "jinja2": ("pitboss.http",),
    "typer": ("pitboss.cli",),
    "click": ("pitboss.cli",),
    "rich": ("pitboss.cli",),
    "httpx": (
        "pitboss.cli",
        "pitboss.client.lease",
        "pitboss.client.lease_http",
        "pitboss.remote",
        "pitboss.telemetry.channels",
    ),
    "prometheus_client": ("pitboss.telemetry",),
    "opentelemetry": ("pitboss.telemetry",),
    "structlog": ("pitboss.telemetry",),
    "cryptography": ("pitboss.secrets",),
    "pydantic_settings": ("pitboss.config",),
    "yaml": ("pitboss.config",),
    **{f"pitboss.engines.{name}": (f"pitboss.engines.{name}", "pitboss.wiring") for name in ENGINES},
}


def within(module: str, room: str) -> bool:
    return module == room or module.startswith(f"{room}.")


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCES).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(node: ast.AST, package: list[str]) -> Iterator[str]:
    """Every module that a statement may load: `from a import b` may load a and a.b."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        near = package[: len(package) - node.level + 1] if node.level else []
        base = ".".join([*near, *([node.module] if node.module else [])])
        yield base
        yield from (f"{base}.{alias.name}" for alias in node.names)


def trespasses(path: Path) -> Iterator[str]:
    name = module_name(path)
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        found = {owned for module in imported(node, package) for owned in OWNERS if within(module, owned)}
        for owned in sorted(found):
            if not any(within(name, room) for room in OWNERS[owned]):
                line = getattr(node, "lineno", 0)
                rooms = " and ".join(OWNERS[owned])
                yield f"{path.relative_to(ROOT)}:{line}: imports {owned}, which only {rooms} may import"


def main() -> int:
    found = [text for path in sorted(SOURCES.rglob("*.py")) for text in trespasses(path)]
    print("\n".join(found) if found else "Drivers: each in its own package.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
