"""The verbs of `engines.protocol` as data: what each one takes, what it answers, and whether workers may call it.

The worker's proxy, the manager's answers and the recorder of the tests are derived from this, so that a new verb is
declared once, in the protocol.
"""

import inspect
from collections.abc import Iterable, Mapping
from functools import cache, cached_property
from typing import Any, get_args, get_origin, get_type_hints

import msgspec

from pitboss.engines.protocol import FullStore

# Callers may pass any sequence, such as a lazy one; MessagePack knows lists.
_encoder = msgspec.msgpack.Encoder(enc_hook=list)


class Verb:
    """One method of one protocol. Arguments and answers travel as MessagePack, typed by its signature."""

    def __init__(self, protocol: type, name: str) -> None:
        self.protocol, self.name = protocol, name
        function = vars(protocol)[name]
        self.open_to_workers: bool = vars(function).get("open_to_workers", False)
        _, *parameters = inspect.signature(function).parameters.values()
        self._signature = inspect.Signature(parameters)
        self._function = function

    def arguments(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """All arguments of a call by name, in the order of the signature."""
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return bound.arguments

    def encode_arguments(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes:
        return _encoder.encode(list(self.arguments(args, kwargs).values()))

    def decode_arguments(self, data: bytes) -> tuple[list[Any], dict[str, Any]]:
        """How to call the verb: its arguments by position, and those that must be named."""
        args, named = list[Any](), dict[str, Any]()
        for one, value in zip(self._signature.parameters.values(), self._arguments.decode(data), strict=True):
            if one.kind is one.KEYWORD_ONLY:
                named[one.name] = value
            else:
                args.append(value)
        return args, named

    def encode_answer(self, answer: object) -> bytes:
        kinds = self._answer_kinds
        return _encoder.encode([answer if isinstance(answer, kind) else None for kind in kinds] if kinds else answer)

    def decode_answer(self, data: bytes) -> Any:
        answer = self._answer.decode(data)
        return next((one for one in answer if one is not None), None) if self._answer_kinds else answer

    @cached_property
    def _hints(self) -> dict[str, Any]:
        return get_type_hints(self._function)

    @cached_property
    def _arguments(self) -> "msgspec.msgpack.Decoder[tuple[Any, ...]]":
        kinds: Any = tuple(_plain(self._hints[name]) for name in self._signature.parameters)
        return msgspec.msgpack.Decoder(tuple[kinds])

    @cached_property
    def _answer(self) -> "msgspec.msgpack.Decoder[Any]":
        kinds: Any = tuple(kind | None for kind in self._answer_kinds)
        return msgspec.msgpack.Decoder(tuple[kinds] if kinds else self._hints["return"])

    @cached_property
    def _answer_kinds(self) -> tuple[Any, ...]:
        """The types of a union that MessagePack cannot tell apart. Such an answer is a list with a place for each."""
        kinds = get_args(self._hints["return"])
        structs = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, msgspec.Struct)]
        return kinds if len(structs) > 1 else ()


def _plain(kind: Any) -> Any:
    """The decoder would leave the items of an `Iterable` undecoded."""
    items: Any = get_args(kind)
    return list[items] if get_origin(kind) is Iterable else kind


@cache
def verbs() -> Mapping[str, Verb]:
    """Every verb of every protocol of a store, by name."""
    return {
        name: Verb(protocol, name)
        for protocol in reversed(FullStore.__mro__)
        for name, function in vars(protocol).items()
        if not name.startswith("_") and inspect.iscoroutinefunction(function)
    }
