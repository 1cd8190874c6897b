"""One session leads at a time, under terms that only grow; a write under a term that is over is refused."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import chain, pairwise

from pitboss.model.session import Lead
from pitboss.testing import history as acts
from pitboss.testing.checker.evidence import Evidence
from pitboss.testing.checker.violation import MOST_LINES, Violation, shown
from pitboss.testing.history import FOREVER, Call

ONE_LEADS = "one session leads at a time, under terms that only grow"
FENCED = "a leader's duties are done under the current term only"


class Terms:
    """The terms that campaigns returned: which session led, by when the term had begun, since when it was over."""

    def __init__(self, calls: Iterable[Call]) -> None:
        self.told: list[tuple[Lead, Call]] = []
        self.unknown_since = FOREVER
        self.resigned: dict[int, list[Call]] = defaultdict(list)
        for call in calls:
            self._file(call)
        self.known: dict[int, tuple[Lead, Call]] = {}
        for lead, call in sorted(self.told, key=lambda pair: pair[1].ended):
            self.known.setdefault(lead.term, (lead, call))

    def may_have_resigned(self, session: int, before: int) -> bool:
        return any(call.begun < before for call in self.resigned[session])

    def over_since(self, term: int) -> int:
        """The place in the order from which the term was over: a later term had begun, or its leader had resigned."""
        lead, first = self.known[term]
        later = [call.ended for other, (_, call) in self.known.items() if other > term]
        left = [call.ended for call in self.resigned[lead.session] if call.answered and call.begun > first.ended]
        return min([*later, *left], default=FOREVER)

    def _file(self, call: Call) -> None:
        match call.act:
            case acts.Campaign(lead=lead) if lead is not None:
                self.told.append((lead, call))
            case acts.Campaign() if call.unknown:
                self.unknown_since = min(self.unknown_since, call.begun)
            case acts.Resign(session=session):
                self.resigned[session].append(call)
            case _:
                pass


def check_leading(seen: Evidence) -> Iterator[Violation]:
    terms = Terms(seen.calls)
    fenced = [(call.act.term, call) for call in seen.calls if isinstance(call.act, acts.Prune | acts.Assign)]
    duties = [(term, call) for term, call in fenced if term is not None]
    found = chain(_answers(seen, terms), _takeovers(seen, terms), _duties(seen, terms, duties))
    for invariant, what in found:
        yield Violation(invariant=invariant, what=what, lines=_story(seen.calls))


def _answers(seen: Evidence, terms: Terms) -> Iterator[tuple[str, str]]:
    over = {term: terms.over_since(term) for term in terms.known}
    for lead, call in terms.told:
        asked = call.act.session if isinstance(call.act, acts.Campaign) else None
        owner = terms.known[lead.term][0].session
        if owner != lead.session:
            yield ONE_LEADS, f"term {lead.term} belonged to session {owner} and to session {lead.session}"
        if lead.mine != (lead.session == asked):
            yield ONE_LEADS, f"session {asked} got the answer that session {lead.session} leads, with mine={lead.mine}"
        if over[lead.term] < call.begun:
            yield ONE_LEADS, f"session {asked} got term {lead.term} after it was over"
        if seen.lives[lead.session].surely_dead(call.asked_at, call.begun):
            yield (
                ONE_LEADS,
                f"session {lead.session} was named the leader of term {lead.term} though the session was over",
            )


def _takeovers(seen: Evidence, terms: Terms) -> Iterator[tuple[str, str]]:
    for earlier, later in pairwise(sorted(terms.known)):
        session, call = terms.known[earlier][0].session, terms.known[later][1]
        dead = seen.lives[session].may_be_dead(call.answered_at, call.ended)
        if not dead and not terms.may_have_resigned(session, call.ended):
            yield ONE_LEADS, f"term {later} began while session {session} led under term {earlier}"


def _duties(seen: Evidence, terms: Terms, duties: list[tuple[int, Call]]) -> Iterator[tuple[str, str]]:
    for term, call in duties:
        if call.answered:
            yield from _accepted(seen, terms, term, call)
        elif call.error == "NotLeader" and term in terms.known:
            yield from _refused(seen, terms, term, call)


def _accepted(seen: Evidence, terms: Terms, term: int, call: Call) -> Iterator[tuple[str, str]]:
    if term not in terms.known:
        if call.ended < terms.unknown_since:
            yield FENCED, f"a write under term {term} was accepted, but that term was never given"
        return
    session = terms.known[term][0].session
    if terms.over_since(term) < call.begun:
        yield FENCED, f"a write under term {term} was accepted after it was over"
    if seen.lives[session].surely_dead(call.asked_at, call.begun):
        yield FENCED, f"a write under term {term} was accepted though session {session}, its leader, was over"


def _refused(seen: Evidence, terms: Terms, term: int, call: Call) -> Iterator[tuple[str, str]]:
    lead, first = terms.known[term]
    alive = not seen.lives[lead.session].may_be_dead(call.answered_at, call.ended)
    if first.ended < call.begun and alive and not terms.may_have_resigned(lead.session, call.ended):
        yield FENCED, f"a write under term {term} was refused though its leader was alive"


def _story(calls: Iterable[Call]) -> tuple[str, ...]:
    return tuple(line for call in calls for line in _lines(call))[-MOST_LINES:]


def _lines(call: Call) -> Iterator[str]:
    match call.act:
        case acts.Campaign(session=session, lead=lead):
            yield shown(call, f"campaign of session {session} → {lead}")
        case acts.Resign(session=session):
            yield shown(call, f"session {session} resigns")
        case acts.EndSession(session=session):
            yield shown(call, f"end session {session}")
        case acts.OpenSession(session=opened) if opened is not None:
            yield shown(call, f"open session {opened.number} until {opened.expires_at}")
        case acts.Renew(session=session, renewal=renewal) if renewal is not None:
            yield shown(call, f"renew session {session} → {renewal.expires_at}")
        case acts.Prune(term=term, changed=changed) if term is not None:
            yield shown(call, f"prune under term {term} → {changed}")
        case acts.Assign(queue=queue, owners=owners, term=term):
            yield shown(call, f"assign of {queue} under term {term}: {owners}")
