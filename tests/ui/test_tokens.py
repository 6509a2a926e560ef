"""Every colour that a page, a table or a chart names exists in both themes."""

import re
from collections.abc import Callable
from importlib.resources import files
from typing import Any

import pytest

from airflow_ett.ui.dag.figures import run_bars
from airflow_ett.ui.data import COMPONENT_TOKENS, jobs_of

STATIC = files("airflow_ett.ui").joinpath("static")
CSS = "".join(STATIC.joinpath(name).read_text() for name in ("palette.css", "ett.css"))
TEXT = [
    *[("fg", "bg"), ("fg-muted", "bg"), ("fg-faint", "bg"), ("fg-muted", "bg-subtle")],
    *[("fg", "bg-inset"), ("link", "bg"), ("ok", "bg"), ("bad", "bg"), ("run", "bg")],
    *[("ok", "ok-bg"), ("bad", "bad-bg"), ("run", "run-bg"), ("none", "none-bg"), ("fg", "ok-bg")],
]


def _theme(selector: str) -> dict[str, str]:
    blocks = re.findall(rf"^{re.escape(selector)} \{{(.*?)^\}}", CSS, re.DOTALL | re.MULTILINE)
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]+);", "".join(blocks)))


THEMES = {"light": _theme(":root"), "dark": _theme(":root.dark")}


@pytest.mark.parametrize("theme", THEMES)
def test_every_named_colour_exists(theme: str, report: Callable[..., dict[str, Any]]) -> None:
    figure = str(run_bars(jobs_of([report(state="failed")])))
    used = set(re.findall(r"var\(--([\w-]+)\)", CSS)) - {"c"}
    used |= set(re.findall(r"'\$([\w-]+)'", figure))
    script = re.sub(r"//.*", "", STATIC.joinpath("ett.js").read_text())
    used |= set(re.findall(r'"\$([\w-]+)"', script))
    used |= {f"ett-{token}" for token in COMPONENT_TOKENS.values()}
    assert len(used) > 20
    assert used - set(THEMES[theme]) == set()


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize(("text", "ground"), TEXT)
def test_text_can_be_read(theme: str, text: str, ground: str) -> None:
    lighter, darker = sorted(
        (_luminance(THEMES[theme][name]) for name in (text, ground)), reverse=True
    )
    assert (lighter + 0.05) / (darker + 0.05) >= 4.5


def _luminance(colour: str) -> float:
    """Relative luminance of an sRGB colour (WCAG 2.2)."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
