"""The migrations as a script that a person can read, and run in place of `upgrade`."""

from pitboss.engines.sqlite.schema import migrations, wanted_version


def script(since: int = 0) -> str:
    """What brings a store of version `since` to the current one; empty if nothing does."""
    parts = [f"-- {name}\n{text.strip()}\n" for number, name, text in migrations() if number > since]
    if not parts:
        return ""
    version = f"INSERT OR REPLACE INTO pitboss_meta (name, value) VALUES ('schema', {wanted_version()});\n"
    return "\n".join(["BEGIN IMMEDIATE;\n", *parts, version, "COMMIT;\n"])
