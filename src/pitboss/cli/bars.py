"""Progress as a bar that stands in a line of text, and as a number for a pipe."""

from pitboss.cli.screen import Screen

_FULL, _EMPTY = "━", "─"


def percent(done: int, of: int) -> int:
    """Whole percents, 100 only when all is done."""
    return 100 if of <= 0 else min(99, done * 100 // of) if done < of else 100


def progress(screen: Screen, done: int, of: int, *, width: int = 12) -> str:
    """A bar on a terminal; elsewhere only the number."""
    share = percent(done, of)
    if not screen.out.is_terminal:
        return f"{share} %"
    full = share * width // 100
    return f"{_FULL * full}{_EMPTY * (width - full)} {share:>3} %"
