"""What a handler's declaration says of its policy; what it does not say, the installation's settings say."""

import difflib
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

import msgspec

from pitboss.client.options import ATTEMPTS, whole_number
from pitboss.model.duration import SECOND, Span, Time, span
from pitboss.model.errors import InvalidInput
from pitboss.model.policy import Backoff, Policy, Rule
from pitboss.model.policy import backoff as make_backoff

if TYPE_CHECKING:
    from pitboss.client.handler import Handler

_LONGEST_PAUSE = 3600 * SECOND
_USUAL = Policy()


class PolicyDefaults(NamedTuple):
    """The policy of handlers that do not say theirs."""

    max_attempts: int = _USUAL.max_attempts
    backoff: Backoff = _USUAL.backoff
    timeout: Span | None = _USUAL.timeout


def policy_defaults(max_attempts: int | None, backoff: Span | None, timeout: Span | None) -> PolicyDefaults:
    """The defaults of an installation. `backoff` is the pause before a first retry; what is None is as usual."""
    usual = PolicyDefaults()
    return PolicyDefaults(
        usual.max_attempts if max_attempts is None else max_attempts,
        usual.backoff if backoff is None else Backoff(base=backoff, cap=max(backoff, usual.backoff.cap)),
        timeout,
    )


class PolicySettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a declaration says. A timeout of None is "no time limit"; UNSET is "not said"."""

    max_attempts: int | None = None
    backoff: Backoff | None = None
    timeout: Span | msgspec.UnsetType | None = msgspec.UNSET
    rules: dict[str, Rule] = {}
    max_rotations: int = _USUAL.max_rotations

    def policy(self, defaults: PolicyDefaults) -> Policy:
        return Policy(
            max_attempts=defaults.max_attempts if self.max_attempts is None else self.max_attempts,
            backoff=defaults.backoff if self.backoff is None else self.backoff,
            timeout=defaults.timeout if self.timeout is msgspec.UNSET else self.timeout,
            rules=self.rules,
            max_rotations=self.max_rotations,
        )


class PolicyKeys(TypedDict, total=False):
    """What all decorators of handlers take."""

    name: str | None
    queue: str | None
    max_attempts: int | None
    backoff: Backoff | Time | None
    timeout: Time | msgspec.UnsetType | None
    rules: Mapping[str, Rule] | None
    max_rotations: int
    fallback: "Handler[Any, Any, Any] | str | None"
    retry_delay: Time | None
    usual: Time | None


def policy_settings(
    *,
    max_attempts: int | None = None,
    backoff: Backoff | Time | None = None,
    timeout: Time | msgspec.UnsetType | None = msgspec.UNSET,
    rules: Mapping[str, Rule] | None = None,
    max_rotations: int = _USUAL.max_rotations,
) -> PolicySettings:
    """The settings as people write them. Refuses those that no policy can have."""
    pauses = backoff if backoff is None or isinstance(backoff, Backoff) else make_backoff(backoff)
    settings = PolicySettings(
        max_attempts=max_attempts,
        backoff=pauses,
        timeout=timeout if timeout is None or timeout is msgspec.UNSET else span(timeout, what="timeout"),
        rules=dict(rules or {}),
        max_rotations=max_rotations,
    )
    settings.policy(PolicyDefaults())
    return settings


def merged(keys: Mapping[str, Any], known: Collection[str], config: str = "") -> dict[str, Any]:
    """Keyword arguments, and what the dict in the argument `config` says besides them, in the words of `@app.task`."""
    own = dict(keys)
    told = own.pop(config, None) or {}
    if not isinstance(told, Mapping):
        raise InvalidInput(
            f"{config} is not a dict", why="it holds options by name", fix=f'write {config}={{"timeout": 60}}'
        )
    refuse_unknown(own, known, "this decorator")
    refuse_unknown(told, known, config)
    return {**_plain(told), **_plain(own)}


def refuse_unknown(keys: Collection[str], known: Collection[str], what: str) -> None:
    """Refuse an option that `what` does not have."""
    for key in keys:
        if key not in known:
            close = difflib.get_close_matches(str(key), known, n=1)
            raise InvalidInput(
                f"{what} has no option {key!r:.60}",
                why="a mistyped option would be ignored silently",
                fix=f'did you mean "{close[0]}"?' if close else f"the options are {', '.join(sorted(known))}",
            )


def _plain(keys: Mapping[str, Any]) -> dict[str, Any]:
    """N retries are N + 1 attempts, and a delay that doubles is a backoff."""
    said = {key: value for key, value in keys.items() if value is not None or key == "timeout"}
    for limit in ("retry_limit", "max_retries"):
        if limit in said:
            _refuse_both(said, limit, "max_attempts")
            retries = whole_number(limit, said.pop(limit), range(ATTEMPTS.stop - 1))
            said["max_attempts"] = retries + 1
    if "retry_delay" in said:
        _refuse_both(said, "retry_delay", "backoff")
        base = span(said.pop("retry_delay"), what="retry_delay")
        said["backoff"] = Backoff(base=base, factor=2, cap=max(base, _LONGEST_PAUSE))
    return said


def _refuse_both(keys: Collection[str], one: str, other: str) -> None:
    if other in keys:
        raise InvalidInput(f"{one}= and {other}= are both given", why="they say the same thing", fix="keep one of them")
