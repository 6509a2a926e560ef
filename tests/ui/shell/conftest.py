"""The hand-made site and a Chromium for the script's tests."""

import shutil
from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="module")
def _served() -> Iterator[Any]:
    pytest.importorskip("airflow.api_fastapi")
    from tests.ui.shell.site import Server, Site, app_of

    site = Site()
    with Server(app_of(site)) as base:
        site.base = base
        yield site


@pytest.fixture
def site(_served: Any) -> Any:
    """The site as it is at first, and nothing asked yet."""
    vars(_served).update(vars(type(_served)(base=_served.base)))
    return _served


# Not for the whole session: while it is there, an event loop runs in this thread.
@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api")
    found = shutil.which("chromium")
    if found is None:
        pytest.skip("Chromium is not installed: apt install chromium")
    flags = ["--no-sandbox", "--disable-gpu"]
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=flags)
        yield browser
        browser.close()


@pytest.fixture
def page(chromium: Any, site: Any) -> Iterator[Any]:
    """A page of a fresh session; an error in its script fails the test."""
    from tests.ui.shell.site import VISITOR

    context = chromium.new_context(
        base_url=site.base, color_scheme="light", extra_http_headers={VISITOR: site.visitor}
    )
    context.set_default_timeout(10_000)
    problems: list[str] = []
    page = context.new_page()
    page.on("pageerror", lambda error: problems.append(str(error)))
    yield page
    context.close()
    assert not problems
