"""One Airflow, and the gallery in its store, for all browser tests."""

import importlib.util
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.ui.browser.stack import FLAGS, airflow_stack, airflows_runs, make_runs
from tests.ui.browser.views import View


@pytest.fixture(scope="session")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The store full of trainings."""
    pytest.importorskip("airflow")
    from tests.ui.gallery.seed import Gallery

    gallery = Gallery(tmp_path_factory.mktemp("gallery"))
    gallery.fill()
    return gallery


@pytest.fixture(scope="session")
def stack(gallery: Any) -> Iterator[Any]:
    """Airflow at /team-a, which knows the gallery's Dags and those of its runs that are opened."""
    stack = airflow_stack(gallery.home)
    stack.start()
    try:
        make_runs(stack, airflows_runs(gallery.runs))
        # All Dags are read: nothing parses them again beside the tests.
        stack.stop_component("dag-processor")
        yield stack
    finally:
        stack.stop()


@pytest.fixture(scope="session")
def tokens(stack: Any) -> dict[str, str]:
    """Each user's token."""
    return {user: stack.login(user).token for user in stack.passwords}


# Not for the whole session: while it is there, an event loop runs in this thread.
@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api")
    found = shutil.which("chromium")
    if found is None:
        pytest.skip("Chromium is not installed: apt install chromium")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def session(stack: Any, chromium: Any, tokens: dict[str, str]) -> Iterator[Callable[[str], Any]]:
    """The browser session of a user, ``session("bob")``, or of nobody, ``session("")``."""
    contexts: dict[str, Any] = {}

    def of(user: str) -> Any:
        if user not in contexts:
            contexts[user] = chromium.new_context(
                viewport={"width": 1280, "height": 900}, color_scheme="light"
            )
            contexts[user].set_default_timeout(10_000)
            if user:
                host = stack.url.removesuffix("/team-a")
                cookie = {"name": "_token", "value": tokens[user], "url": f"{host}/"}
                contexts[user].add_cookies([cookie])
        return contexts[user]

    yield of
    for context in contexts.values():
        context.close()


@pytest.fixture
def view(stack: Any, gallery: Any, session: Callable[[str], Any]) -> Iterator[View]:
    """A page of the signed-in admin."""
    page = session("admin").new_page()
    yield View(page, stack.url, gallery.runs)
    page.close()


@pytest.fixture(scope="session")
def axe() -> str:
    """axe-core's script."""
    spec = importlib.util.find_spec("axe_playwright_python")
    if spec is None or spec.origin is None:
        pytest.skip("axe-playwright-python is not installed")
    return (Path(spec.origin).parent / "axe.min.js").read_text(encoding="utf-8")
