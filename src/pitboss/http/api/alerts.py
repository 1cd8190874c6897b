"""Alerts: which fire, how every rule is, and silences."""

from pitboss.http import bodies
from pitboss.http.answers import Answer, ApiError
from pitboss.http.context import Call
from pitboss.model.duration import SECOND, span
from pitboss.model.errors import NotFound
from pitboss.operate.alerts import (
    alerts_document,
    end_silence,
    read_alerts,
    send_test,
    silence_document,
    silence_rule,
)

# For how long a request waits until a channel has taken a test.
_TEST_WITHIN = 15 * SECOND


async def list_alerts(call: Call) -> Answer:
    """All rules with their present values, what fires first; and the channels."""
    found = alerts_document(await read_alerts(call.store))
    return Answer(data={**found, "items": found["alerts"], "count": len(found["alerts"])})


async def silence(call: Call, body: bodies.SilenceAlert) -> Answer:
    """Send nothing about a rule for this many seconds."""
    store = call.audited("alerts silence", body.rule, {"for": body.lasts, "reason": body.reason})
    try:
        made = await silence_rule(store, body.rule, span(body.lasts), by=call.by, reason=body.reason)
    except NotFound as error:
        raise _unknown(error) from error
    ahead = store.clock.wall() - store.clock.now()
    return Answer(data=silence_document(made, ahead), message="Alert silenced", code=201)


async def unsilence(call: Call, rule: str) -> Answer:
    """End a silence."""
    known = await read_alerts(call.store)
    if not any(one.rule.name == rule and one.silence is not None for one in known.alerts):
        # An act on what does not exist leaves nothing in the audit log.
        raise ApiError(404, f'The alert "{rule[:80]}" is not silenced', fix="GET /api/alerts lists silences")
    try:
        await end_silence(call.audited("alerts unsilence", rule), rule)
    except NotFound as error:
        raise _unknown(error) from error
    return Answer(data={"rule": rule}, message="Alert no longer silenced")


async def test_channel(call: Call, name: str) -> Answer:
    """Send a test through a channel, and wait until it is taken."""
    try:
        await send_test(call.audited("alerts test", name), name, call.server.make_id, _TEST_WITHIN)
    except NotFound as error:
        raise _unknown(error) from error
    return Answer(data={"channel": name}, message="The channel took the test")


def _unknown(error: NotFound) -> ApiError:
    return ApiError(404, error.what, why=error.why, fix="GET /api/alerts lists them")
