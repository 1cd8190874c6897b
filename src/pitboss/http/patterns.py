"""What texts may look like, for the OpenAPI document too, and how a text that does not is explained."""

NAME = r"^[A-Za-z0-9_][A-Za-z0-9_.:\-]{0,127}$"
# No store keeps NUL in text.
PLAIN = r"^[^\x00]*$"
WORKER = r"^[^\x00-\x1f]+$"
_UNIT = "(?:second|sec|minute|min|hour|day|(?:[1-9][0-9]{0,3})?(?:ms|s|m|h|d)|(?:[1-9][0-9]?)?w)"
_WINDOW = f"[1-9][0-9]{{0,8}} ?/ ?{_UNIT}"
RATE = f"^(?:{_WINDOW}(?:, ?{_WINDOW})*)?$"
EVENT = r"^[A-Za-z0-9_:\-]+(\.[A-Za-z0-9_:\-]+)*$"
ID = r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"
# What to say of a text that does not match.
EXPLAINED = {
    NAME: "A name is 1 to 128 letters, digits and _ . : - and begins with a letter, digit or _",
    PLAIN: "NUL cannot be stored",
    WORKER: "It cannot be empty or have control characters",
    EVENT: 'The name of an event is made of parts with dots between them, like "user.signup"',
    ID: "An id is a UUID in lower case, such as 01900000-0000-7000-8000-000000000000",
    RATE: 'A rate is written like "20/min", "50/h" or "2/s, 100/10m"',
}
