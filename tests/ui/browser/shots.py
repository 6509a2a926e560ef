"""Shots of every view in both themes and two widths: ``python -m tests.ui.browser.shots OUT``.

With further words, only of the views whose name has one of them.
"""

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from tests.ui.browser.stack import FLAGS, airflow_stack, airflows_runs, make_runs
from tests.ui.browser.views import ALONE, IN_AIRFLOW, View
from tests.ui.gallery.seed import Gallery

WIDTHS = (1280, 800)
WINDOW = {"width": 1440, "height": 900}
DENIED = {"denied": "ett/dag/{sealed}"}


def main(out: Path, words: list[str]) -> None:
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as home, running(Path(home)) as (stack, gallery):
        shoot(
            out, words, stack.url, {u: stack.login(u).token for u in stack.passwords}, gallery.runs
        )


@contextmanager
def running(home: Path) -> Iterator[tuple[Any, Gallery]]:
    gallery = Gallery(home)
    gallery.fill()
    stack = airflow_stack(home)
    stack.start()
    try:
        make_runs(stack, airflows_runs(gallery.runs))
        yield stack, gallery
    finally:
        stack.stop()


def shoot(
    out: Path, words: list[str], url: str, tokens: dict[str, str], runs: dict[str, str]
) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        for theme in ("light", "dark"):
            for views, user in ((ALONE, "admin"), (DENIED, "bob"), (IN_AIRFLOW, "admin")):
                context = browser.new_context(color_scheme=theme, viewport=WINDOW)
                # Airflow's own theme, and ours where the page stands alone.
                context.add_init_script(f"localStorage.setItem('theme', '{theme}')")
                context.add_cookies([{"name": "_token", "value": tokens[user], "url": url}])
                view = View(context.new_page(), url, runs)
                for name, path in views.items():
                    if not words or any(word in name for word in words):
                        _shoot(out, view, name, path, theme)
                context.close()
        browser.close()


def _shoot(out: Path, view: View, name: str, path: str, theme: str) -> None:
    alone = path.startswith("ett/")
    file = name.replace(" ", "-")
    for width in WIDTHS if alone else (WINDOW["width"],):
        view.page.set_viewport_size({"width": width, "height": WINDOW["height"]})
        view.open(path)
        shown = f"{file}-{width}" if alone else f"in-airflow-{file}"
        view.page.screenshot(path=out / f"{shown}-{theme}.png", full_page=alone)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
