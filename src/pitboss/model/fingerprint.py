"""Error fingerprints: failures with the same cause get the same one, whatever ids and numbers they mention."""

import re
from hashlib import blake2b

_VARIABLE = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"  # ids
    r"|0x[0-9a-fA-F]+"  # addresses of objects
    r"|'[^']*'|\"[^\"]*\""  # quoted values
    r"|\b\w*\d\w*\b"  # numbers, and words with numbers in them
)
_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line \d+, in (?P<name>.+)$', re.MULTILINE)
_INNERMOST = 3


def fingerprint(handler: str, error_type: str, message: str, traceback: str) -> str:
    """Twelve hex digits from the handler, the error's type, its innermost frames and its message without values.

    Line numbers stay out: the same failure keeps its group over a deploy that moved the code.
    """
    frames = [f"{match['file'].rsplit('/', 1)[-1]}:{match['name']}" for match in _FRAME.finditer(traceback)]
    shape = _VARIABLE.sub("#", message.partition("\n")[0])
    text = "\n".join([handler, error_type, *frames[-_INNERMOST:], shape])
    return blake2b(text.encode("utf-8", "backslashreplace"), digest_size=6).hexdigest()
