"""Every page in both themes, and on a telephone, judged by axe-core: nothing serious or critical."""

from collections.abc import Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import BrowserContext, sync_playwright

from tests.http.site import Site
from tests.http.web.pages import DETAILS, PAGES, furnish
from tests.servers.browser import ARGUMENTS, find_chromium

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def visited() -> Iterator[tuple[Site, BrowserContext]]:
    with Site() as site, sync_playwright() as driver:
        site.do(furnish(site.store, site.server.make_id))
        browser = driver.chromium.launch(executable_path=find_chromium(), args=ARGUMENTS)
        yield site, browser.new_context()
        browser.close()


@pytest.mark.parametrize(("theme", "width"), [("light", 1440), ("dark", 1440), ("dark", 375)])
def test_no_page_has_a_serious_fault(visited: tuple[Site, BrowserContext], theme: str, width: int) -> None:
    site, context = visited
    context.add_cookies([{"name": "pitboss_theme", "value": theme, "url": f"{site.url}/ui"}])
    page, axe, faults = context.new_page(), Axe(), list[str]()
    page.set_viewport_size({"width": width, "height": 800})
    for path in (*PAGES, *DETAILS):
        page.goto(f"{site.url}/ui{path}")
        assert page.evaluate("document.documentElement.dataset.theme") == theme
        for one in axe.run(page).response["violations"]:
            if one["impact"] in ("serious", "critical"):
                places = [node["html"] for node in one["nodes"][:3]]
                faults.append(f"{path} {one['id']}: {one['help']} {len(one['nodes'])} × {places}")
    assert not faults, "\n".join(faults)
