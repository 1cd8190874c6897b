"""Thousands of requests made from the OpenAPI document, right and wrong ones: the server does what the document says.

The soak (`python -m benchmarks.http_fuzz`) makes more of them, with a new seed each time, on every engine.
"""

import pytest

from tests.http.fuzzing import fuzz
from tests.http.site import Site

SEED = 1
# Whether requests are enough to mean something: the phase that walks through the limits of every field makes 2,500.
ENOUGH = 2_500


@pytest.mark.timeout(180)
def test_the_server_does_what_its_document_says() -> None:
    with Site() as site:
        found = fuzz(site, examples=3, seed=SEED)
    assert found.failures == 0, found.text
    assert found.server_errors == 0
    assert found.requests >= ENOUGH
