"""The life of alerts, and what channels are told: properties over random histories, and the cases of the documents."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pitboss.model.alert import AlertRule, AlertState, Phase, Severity, Subject, stepped
from pitboss.model.alert_counters import Counters
from pitboss.model.alert_digest import DIGEST, MOST_AT_ONCE, Alert, ChannelState, next_message
from pitboss.model.alert_message import AlertMessage, Kind
from pitboss.model.duration import SECOND

LOOK = 10 * SECOND
RULE = AlertRule(name="wait", condition="processing_delay", threshold=100, lasting=30 * SECOND, severity=Severity.LOW)
AT_ONCE = replace(RULE, lasting=0)
BAD, GOOD = [Subject("mail", 150, "mail waits", new=3)], [Subject("mail", 50, "mail waits")]

looks = st.lists(st.booleans(), max_size=200)


def lived(rule: AlertRule, looks: list[bool]) -> list[AlertState]:
    state, found = AlertState(), list[AlertState]()
    for number, bad in enumerate(looks):
        state = stepped(state, rule, BAD if bad else GOOD, number * LOOK)
        found.append(state)
    return found


@given(looks)
def test_it_fires_once_a_subject_has_been_beyond_the_threshold_for_long_enough(looks: list[bool]) -> None:
    for number, state in enumerate(lived(RULE, looks)):
        lasted = number >= 3 and all(looks[number - 3 : number + 1])
        if lasted:
            assert state.phase is Phase.FIRING
        elif looks[number] and state.phase is not Phase.FIRING:
            assert state.phase is Phase.PENDING


@given(looks)
def test_it_is_resolved_after_as_long_as_it_had_to_last(looks: list[bool]) -> None:
    states = lived(RULE, looks)
    for number, (before, after) in enumerate(pairwise(states), start=1):
        if before.phase is Phase.FIRING and after.phase is not Phase.FIRING:
            assert not any(looks[number - 3 : number + 1])
            assert after.phase is Phase.QUIET
            assert after.about == "mail waits"


@given(looks)
def test_it_counts_how_often_it_fired(looks: list[bool]) -> None:
    states = [AlertState(), *lived(RULE, looks)]
    began = sum(before.phase is not Phase.FIRING and after.phase is Phase.FIRING for before, after in pairwise(states))
    assert states[-1].fired == began


def test_each_subject_must_last_by_itself() -> None:
    state = AlertState()
    for number in range(20):
        turn = [Subject(f"queue {number % 2}", 150, "waits")]
        state = stepped(state, RULE, turn, number * LOOK)
        assert state.phase is Phase.PENDING


def test_a_rule_looks_only_at_what_it_names_and_at_too_little_if_it_says_so() -> None:
    state = stepped(AlertState(), replace(AT_ONCE, only=("other",)), BAD, 0)
    assert (state.phase, state.value) == (Phase.QUIET, None)
    worker = [Subject("here/default-1", 150, "full", of="default")]
    assert stepped(AlertState(), replace(AT_ONCE, only=("default",)), worker, 0).phase is Phase.FIRING
    assert stepped(AlertState(), replace(AT_ONCE, below=True), GOOD, 0).phase is Phase.FIRING
    assert stepped(AlertState(), replace(AT_ONCE, below=True), BAD, 0).phase is Phase.QUIET


def test_the_worst_subject_is_named_first() -> None:
    subjects = [Subject(name, value, f"{name} waits") for name, value in (("a", 110), ("b", 300), ("c", 20))]
    state = stepped(AlertState(), AT_ONCE, subjects, 0)
    assert (state.about, state.value) == ("b waits; also a", 300)


def told(histories: dict[str, list[bool]], rules: dict[str, AlertRule]) -> list[AlertMessage]:
    """The messages of one channel."""
    channel, messages = ChannelState(), list[AlertMessage]()
    states = dict.fromkeys(histories, AlertState())
    for number in range(max(map(len, histories.values()), default=0)):
        for name, looks in histories.items():
            bad = number < len(looks) and looks[number]
            states[name] = stepped(states[name], rules[name], BAD if bad else GOOD, number * LOOK)
        alerts = {name: Alert(rules[name], state) for name, state in states.items()}
        channel, message = next_message(channel, alerts, number * LOOK)
        messages += [message] if message is not None else []
    return messages


NAMES = [f"rule {number}" for number in range(10)]
RULES = {name: replace(AT_ONCE, name=name) for name in NAMES}


@given(st.dictionaries(st.sampled_from(NAMES), st.lists(st.booleans(), max_size=200), max_size=4))
def test_a_channel_is_never_flooded(histories: dict[str, list[bool]]) -> None:
    messages = told(histories, RULES)
    for first in messages:
        period = [one for one in messages if first.at <= one.at < first.at + DIGEST]
        assert sum(one.kind is Kind.RESOLVED for one in period) <= 1
        assert sum(one.kind is Kind.DIGEST for one in period) <= 1
        assert sum(one.kind is Kind.ALERT for one in period) <= 2 * MOST_AT_ONCE
    # The first message of an alert goes out at once, and only once within a period.
    for name in NAMES:
        at_once = [one.at for one in messages if one.kind is Kind.ALERT and any(x.rule == name for x in one.lines)]
        assert len([one for one in at_once if at_once and one < at_once[0] + DIGEST]) <= MOST_AT_ONCE


@given(st.dictionaries(st.sampled_from(NAMES), st.lists(st.booleans(), max_size=40), max_size=4))
def test_in_the_end_a_channel_knows_the_truth(histories: dict[str, list[bool]]) -> None:
    """Every alert that fired was told, and that it is over."""
    quiet = {name: [*looks, *[False] * 200] for name, looks in histories.items()}
    believed: dict[str, bool] = {}
    for message in told(quiet, RULES):
        for line in message.lines:
            believed[line.rule] = line.firing
    assert believed == {name: False for name, looks in histories.items() if any(looks)}


def test_the_first_at_once_then_a_digest_then_resolved() -> None:
    messages = told({"rule 0": [*[True] * 200, *[False] * 10]}, RULES)
    assert [one.kind for one in messages] == [Kind.ALERT, Kind.DIGEST, Kind.DIGEST, Kind.RESOLVED]
    assert [line.more for one in messages for line in one.lines][1] == 3 * DIGEST // LOOK
    assert "270 more since the last message" in messages[1].text
    assert "1 alert firing; what is new of the last 15m" in messages[1].title


def test_flapping_is_told_in_digests() -> None:
    messages = told({"rule 0": [True, False] * 360}, RULES)
    hours = 2
    assert len(messages) <= 2 + hours * 4 * 2
    assert any("it fired 44 more times" in one.text or "it fired 45 more times" in one.text for one in messages)


def test_alerts_of_one_look_share_a_message() -> None:
    messages = told({name: [True] for name in NAMES[:4]}, RULES)
    assert [len(one.lines) for one in messages] == [4]
    assert messages[0].title == "Pitboss: rule 0 and 3 more"


def test_a_silenced_alert_tells_nothing_also_not_that_it_is_over() -> None:
    firing = stepped(AlertState(), AT_ONCE, BAD, 0)
    quiet = stepped(firing, AT_ONCE, GOOD, LOOK)
    channel, message = next_message(ChannelState(), {"wait": Alert(AT_ONCE, firing, silenced=True)}, 0)
    assert message is None
    channel, message = next_message(channel, {"wait": Alert(AT_ONCE, firing)}, LOOK)
    assert message is not None
    channel, message = next_message(channel, {"wait": Alert(AT_ONCE, firing, silenced=True)}, 2 * LOOK)
    assert message is None
    channel, message = next_message(channel, {"wait": Alert(AT_ONCE, quiet)}, 3 * LOOK)
    assert message is None
    assert next_message(channel, {"wait": Alert(AT_ONCE, quiet)}, 3 * DIGEST)[1] is None


def test_what_is_over_says_what_it_was_also_when_it_is_told_later() -> None:
    """Regression: the digest said "resolved: ;"."""
    messages = told({"rule 0": [True, False, True, *[False] * 300]}, RULES)
    assert [one.kind for one in messages] == [Kind.ALERT, Kind.RESOLVED, Kind.DIGEST]
    (line,) = messages[-1].lines
    assert (line.about, line.since, line.again) == ("mail waits", 3 * LOOK, 1)
    assert line.text.startswith("rule 0 (low) resolved: over since 1970-01-01 00:00:30 UTC; it was: mail waits; ")


def test_a_new_channel_is_not_told_of_the_past() -> None:
    past = replace(AlertState(), fired=7)
    assert next_message(ChannelState(), {"wait": Alert(RULE, past)}, 0)[1] is None


totals = st.lists(st.integers(0, 50), min_size=1, max_size=60)


@given(totals)
def test_counters_count_what_came_within_the_window(totals: list[int]) -> None:
    counters, window = Counters(), 600 * SECOND
    for number, total in enumerate(totals):
        known = {("failed", "mail", ""): total}
        counters = counters.counted(known, number * LOOK, longest=window, shortest=window)
    came = [max(0, after - before) for before, after in pairwise(totals)]
    assert counters.within("failed", "mail", window) == sum(came)
    assert counters.latest("failed", "mail") == (came[-1] if came else 0)


def test_counters_forget_what_is_older_than_the_window_and_begin_anew_after_a_pause() -> None:
    counters, window = Counters(), 60 * SECOND
    for second in range(0, 200, 10):
        total = {("failed", "mail", ""): min(second, 100)}
        counters = counters.counted(total, second * SECOND, longest=window, shortest=window)
        assert len(counters.portions) <= 21
    assert counters.within("failed", "mail", window) == 0
    counters = counters.counted({("failed", "mail", ""): 900}, 300 * SECOND, longest=window, shortest=window)
    assert counters.within("failed", "mail", window) == 0


def test_origins_of_one_subject_are_counted_together() -> None:
    first = {("crashes", "default", "a:1"): 2, ("crashes", "default", "b:1"): 1}
    later = {("crashes", "default", "a:2"): 1, ("crashes", "default", "b:1"): 3}
    counters = (
        Counters().counted(first, 0, longest=LOOK, shortest=LOOK).counted(later, LOOK, longest=LOOK, shortest=LOOK)
    )
    assert counters.latest("crashes", "default") == 3
