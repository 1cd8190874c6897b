"""Answers what handlers ask of the store. Workers have no store of their own, and are not trusted with all of it."""

import msgspec

from pitboss.engines.access_protocol import Audited
from pitboss.engines.capabilities import require
from pitboss.engines.verbs import Verb, verbs
from pitboss.manager import host
from pitboss.model.errors import InvalidInput, PitbossError
from pitboss.worker.channel import MAX_FRAME, AnswerMessage, AskMessage

_LARGEST = MAX_FRAME // 2


async def answer(store: object, ask: AskMessage, asker: str) -> AnswerMessage:
    """The store's answer, or its error as data. `asker` is the process, for the audit log."""
    try:
        data = await _answered(_audited(store, ask, asker), ask)
    except PitbossError as error:
        return AnswerMessage(ask.number, error=(error.code, error.what, error.why, error.fix))
    except Exception as error:
        return AnswerMessage(ask.number, error=("error", f"{type(error).__name__}: {error}", "", ""))
    return AnswerMessage(ask.number, data)


async def _answered(store: object, ask: AskMessage) -> bytes:
    verb = _open_verb(ask.verb)
    require(store, verb.protocol)
    args, named = verb.decode_arguments(ask.arguments)
    data = verb.encode_answer(await getattr(store, verb.name)(*args, **named))
    if len(data) > _LARGEST:
        # A frame that is too long would cut the worker off, with everything that it runs.
        raise InvalidInput(
            f"the answer has {len(data):,} bytes",
            why=f"a worker is answered in one message of at most {_LARGEST:,} bytes",
            fix="ask for less at a time, or from a process that has the store itself",
        )
    return data


def _audited(store: object, ask: AskMessage, asker: str) -> object:
    """The store, which also stores the entry of the asking code. Where it came from is not left to that code."""
    if ask.entry is None or not isinstance(store, Audited):
        return store
    return store.audited(msgspec.structs.replace(ask.entry, source=f"{asker} on {host.name()}"))


def _open_verb(name: str) -> Verb:
    verb = verbs().get(name)
    if verb is None or not verb.open_to_workers:
        raise InvalidInput(
            f'a worker may not call "{name}"',
            why="only the verbs that handlers need are open to workers",
            fix="call it from a process that has the store itself",
        )
    return verb
