"""A Chromium that takes small pictures of pages, the same ones each time: a fixed clock, time zone, locale and font."""

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from tests.servers.browser import ARGUMENTS, find_chromium

FONTS = Path(__file__).resolve().parent.parent / "build" / "fonts" / "fonts.conf"
ZONE, LOCALE = "Europe/Berlin", "en-GB"
# Of the pictures, and how many of them are those that most pixels have.
COLOURS, MAIN = 56, 16
# Of narrow windows, below the page.
BAR = 60
# Where a page that is too long is cut: between two cards rather than through one.
_CUT = """most => {
  const boxes = [...document.querySelectorAll("main .card")].map(one => one.getBoundingClientRect());
  const between = boxes.map(one => one.bottom + 12)
    .filter(at => at > most * 0.6 && at <= most && !boxes.some(one => one.top < at - 13 && one.bottom > at));
  return Math.max(...between, 0) || most;
}"""
Colour = tuple[int, int, int]


class Look(NamedTuple):
    """A size of the window and a theme. What is below `most` pixels is left out."""

    size: str
    theme: str
    width: int
    height: int
    most: int

    @property
    def name(self) -> str:
        return f"{self.size}-{self.theme}"


LOOKS = tuple(
    Look(size, theme, *numbers)
    for size, numbers in (("wide", (1440, 900, 1200)), ("narrow", (390, 844, 2000)))
    for theme in ("light", "dark")
)


@contextmanager
def chromium() -> Iterator[Browser]:
    """With the font that `make screenshots` has fetched, not with those that a machine happens to have."""
    where = {"FONTCONFIG_FILE": str(FONTS)} if FONTS.exists() else {}
    with sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=find_chromium(),
            args=[*ARGUMENTS, "--font-render-hinting=none"],
            env={**os.environ, **where},
        )
        yield browser
        browser.close()


@contextmanager
def looking(browser: Browser, url: str, look: Look, seconds: float | None = None) -> Iterator[Page]:
    """A page with this look. `seconds` is the time that its clock shows; None: that of the machine."""
    context = browser.new_context(
        viewport={"width": look.width, "height": look.height}, timezone_id=ZONE, locale=LOCALE, reduced_motion="reduce"
    )
    context.add_cookies([{"name": "pitboss_theme", "value": look.theme, "url": f"{url}/ui"}])
    page = context.new_page()
    if seconds is not None:
        page.clock.set_fixed_time(seconds)
    yield page
    context.close()


def take(page: Page, address: str, look: Look, file: Path, *, most: int | None = None) -> None:
    """As tall as the page, but not taller than `most`. The window grows: what is fixed to its edge stays there."""
    page.set_viewport_size({"width": look.width, "height": look.height})
    page.goto(address)
    page.locator("#live", has_text="Live").wait_for(timeout=20_000)
    tall = int(page.evaluate("document.documentElement.scrollHeight"))
    if tall > (limit := most or look.most):
        tall = int(page.evaluate(_CUT, limit - BAR * (look.size == "narrow"))) + BAR * (look.size == "narrow")
    page.set_viewport_size({"width": look.width, "height": max(look.height, tall)})
    # Large charts are drawn anew after a change of size.
    page.wait_for_timeout(200)
    save(page.screenshot(animations="disabled", caret="hide"), file)


def save(picture: bytes, file: Path) -> None:
    """With few colours: as WebP without loss (half of a PNG), or as the PNG that the name wants. Pillow would choose
    colours that are near; the main ones must be exact."""
    file.parent.mkdir(parents=True, exist_ok=True)
    found = Image.open(io.BytesIO(picture)).convert("RGB")
    chosen = palette(found)
    known: Any = found.getcolors(found.width * found.height)
    place = {one: min(range(len(chosen)), key=lambda n: _apart(chosen[n], one)) for _, one in known}
    small = Image.new("P", found.size)
    small.putpalette([part for colour in chosen for part in colour])
    small.putdata([place[pixel] for pixel in found.get_flattened_data()])
    if file.suffix == ".webp":
        small.convert("RGB").save(file, lossless=True, quality=100, method=6)
    else:
        small.save(file, optimize=True)


def palette(picture: Image.Image) -> list[Colour]:
    """The few colours with which a picture stays small: first the main ones, then each time the one that is the worst
    shown. Those of small marks count, because they are far from all others."""
    known: Any = picture.getcolors(picture.width * picture.height)
    ranked: list[tuple[int, Colour]] = sorted(known, key=lambda one: (-one[0], one[1]))
    chosen = [colour for _, colour in ranked[:MAIN]]
    off = {colour: (count**0.5, min(_apart(colour, one) for one in chosen)) for count, colour in ranked[MAIN:]}
    while off and len(chosen) < COLOURS:
        worst = max(off, key=lambda one: off[one][0] * off[one][1])
        chosen.append(worst)
        del off[worst]
        off = {one: (weight, min(far, _apart(one, worst))) for one, (weight, far) in off.items()}
    return chosen


def _apart(one: Colour, other: Colour) -> int:
    return (one[0] - other[0]) ** 2 + (one[1] - other[1]) ** 2 + (one[2] - other[2]) ** 2
