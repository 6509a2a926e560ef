"""Wait for what a page becomes. Playwright's own ``wait_for_function`` needs an eval, which the
pages' security policy forbids."""

import time
from contextlib import suppress
from typing import Any


def until(page: Any, expression: str, within_s: float = 10) -> None:
    """Wait until a JavaScript expression holds in a page or frame, which may be leaving."""
    from playwright.sync_api import Error

    end = time.monotonic() + within_s
    while time.monotonic() < end:
        with suppress(Error):
            if page.evaluate(expression):
                return
        page.wait_for_timeout(20)
    raise AssertionError(f"never: {expression}")
