"""One leads at a time, under terms that only grow, and what a leader does under a term that is over is refused."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import chain, pairwise

from pitboss.model.session import Lead
from pitboss.testing import history as told
from pitboss.testing.checker.evidence import Evidence
from pitboss.testing.checker.violation import MOST_LINES, Violation, shown
from pitboss.testing.history import FOREVER, Call

ONE_LEADS = "one session leads at a time, under terms that only grow"
FENCED = "a leader's duties are done under the current term only"


class Reigns:
    """The terms that campaigns were told of: whose each is, by when it had begun, and since when it was surely over."""

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
        """From where on in the order it was over, by a later term or because its leader resigned."""
        lead, first = self.known[term]
        later = [call.ended for other, (_, call) in self.known.items() if other > term]
        left = [call.ended for call in self.resigned[lead.session] if call.answered and call.begun > first.ended]
        return min([*later, *left], default=FOREVER)

    def _file(self, call: Call) -> None:
        match call.act:
            case told.Campaign(lead=lead) if lead is not None:
                self.told.append((lead, call))
            case told.Campaign() if call.unknown:
                self.unknown_since = min(self.unknown_since, call.begun)
            case told.Resign(session=session):
                self.resigned[session].append(call)
            case _:
                pass


def check_leading(seen: Evidence) -> Iterator[Violation]:
    reigns = Reigns(seen.calls)
    fenced = [(call.act.term, call) for call in seen.calls if isinstance(call.act, told.Prune)]
    duties = [(term, call) for term, call in fenced if term is not None]
    found = chain(_answers(seen, reigns), _takeovers(seen, reigns), _duties(seen, reigns, duties))
    for invariant, what in found:
        yield Violation(invariant=invariant, what=what, events=_story(seen.calls))


def _answers(seen: Evidence, reigns: Reigns) -> Iterator[tuple[str, str]]:
    over = {term: reigns.over_since(term) for term in reigns.known}
    for lead, call in reigns.told:
        asked = call.act.session if isinstance(call.act, told.Campaign) else None
        owner = reigns.known[lead.term][0].session
        if owner != lead.session:
            yield ONE_LEADS, f"term {lead.term} was session {owner}'s and session {lead.session}'s"
        if lead.mine != (lead.session == asked):
            yield ONE_LEADS, f"session {asked} was told that session {lead.session} leads, and mine={lead.mine}"
        if over[lead.term] < call.begun:
            yield ONE_LEADS, f"session {asked} was told of term {lead.term} after it was over"
        if seen.lives[lead.session].surely_dead(call.asked_at, call.begun):
            yield ONE_LEADS, f"session {lead.session} was said to lead under term {lead.term} though it was over"


def _takeovers(seen: Evidence, reigns: Reigns) -> Iterator[tuple[str, str]]:
    for earlier, later in pairwise(sorted(reigns.known)):
        session, call = reigns.known[earlier][0].session, reigns.known[later][1]
        dead = seen.lives[session].may_be_dead(call.answered_at, call.ended)
        if not dead and not reigns.may_have_resigned(session, call.ended):
            yield ONE_LEADS, f"term {later} began while session {session} led under term {earlier}"


def _duties(seen: Evidence, reigns: Reigns, duties: list[tuple[int, Call]]) -> Iterator[tuple[str, str]]:
    for term, call in duties:
        if call.answered:
            yield from _accepted(seen, reigns, term, call)
        elif call.error == "NotLeader" and term in reigns.known:
            yield from _refused(seen, reigns, term, call)


def _accepted(seen: Evidence, reigns: Reigns, term: int, call: Call) -> Iterator[tuple[str, str]]:
    if term not in reigns.known:
        if call.ended < reigns.unknown_since:
            yield FENCED, f"a write under term {term} was accepted, which was never given"
        return
    session = reigns.known[term][0].session
    if reigns.over_since(term) < call.begun:
        yield FENCED, f"a write under term {term} was accepted after it was over"
    if seen.lives[session].surely_dead(call.asked_at, call.begun):
        yield FENCED, f"a write under term {term} was accepted though session {session}, its leader, was over"


def _refused(seen: Evidence, reigns: Reigns, term: int, call: Call) -> Iterator[tuple[str, str]]:
    lead, first = reigns.known[term]
    alive = not seen.lives[lead.session].may_be_dead(call.answered_at, call.ended)
    if first.ended < call.begun and alive and not reigns.may_have_resigned(lead.session, call.ended):
        yield FENCED, f"a write under term {term} was refused though its leader was alive"


def _story(calls: Iterable[Call]) -> tuple[str, ...]:
    return tuple(line for call in calls for line in _lines(call))[-MOST_LINES:]


def _lines(call: Call) -> Iterator[str]:
    match call.act:
        case told.Campaign(session=session, lead=lead):
            yield shown(call, f"campaign of session {session} → {lead}")
        case told.Resign(session=session):
            yield shown(call, f"session {session} resigns")
        case told.EndSession(session=session):
            yield shown(call, f"end session {session}")
        case told.OpenSession(session=opened) if opened is not None:
            yield shown(call, f"open session {opened.number} until {opened.expires_at}")
        case told.Renew(session=session, renewal=renewal) if renewal is not None:
            yield shown(call, f"renew session {session} → {renewal.expires_at}")
        case told.Prune(term=term, changed=changed) if term is not None:
            yield shown(call, f"prune under term {term} → {changed}")
