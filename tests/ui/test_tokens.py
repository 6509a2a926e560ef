"""Every colour and class that a page, a table or a chart names exists, and can be seen."""

import re
from importlib.resources import files
from itertools import chain
from pathlib import Path

import pytest

from airflow_ett.ui.data import COMPONENT_TOKENS
from tests.ui.colour import contrast
from tests.ui.stylesheet import CSS, THEMES

UI = Path(str(files("airflow_ett.ui")))
TEMPLATES = {
    str(path.relative_to(UI)): path.read_text() for path in UI.joinpath("templates").rglob("*.html")
}
GROUNDS = ("bg", "bg-subtle")
TEXT = [
    *((text, ground) for text in ("fg", "fg-muted", "fg-faint", "link") for ground in GROUNDS),
    *((text, ground) for text in ("ok", "warn", "bad", "run") for ground in GROUNDS),
    *((state, f"{state}-bg") for state in ("ok", "warn", "bad", "run", "none")),
    *[("fg", "bg-inset"), ("fg-muted", "bg-inset"), ("fg", "ok-bg"), ("fg-muted", "warn-bg")],
]
MARKS = [
    *(("focus", ground) for ground in (*GROUNDS, "bg-inset")),
    *((state, "bg") for state in ("ok", "warn", "bad", "run", "none", "fg-faint")),
]


def _named() -> dict[str, set[str]]:
    """Return where colours are named, and which."""
    found = {"style sheet": set(re.findall(r"var\(--([\w-]+)", CSS)) - {"c"}}
    for path in chain(UI.rglob("*.py"), UI.rglob("*.js")):
        text = re.sub(r"//.*", "", path.read_text())
        found[path.relative_to(UI).as_posix()] = set(re.findall(r'"\$([\w-]+)"', text)) - {"ref"}
    for name, text in TEMPLATES.items():
        found[name] = set(re.findall(r"var\(--([\w-]+)[,)]", text))
    return {place: names for place, names in found.items() if names}


NAMED = _named()


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("place", NAMED)
def test_every_named_colour_exists(theme: str, place: str) -> None:
    assert NAMED[place] - set(THEMES[theme]) == set()


def test_colours_are_named_where_they_are_expected() -> None:
    assert {"style sheet", "static/figure.js", "dag/figures.py"} <= set(NAMED)
    assert set(THEMES["light"]) == set(THEMES["dark"])
    assert {f"ett-{token}" for token in COMPONENT_TOKENS.values()} <= set(THEMES["light"])


def test_no_colour_stands_outside_of_the_style_sheet() -> None:
    for path in chain(UI.rglob("*.py"), UI.rglob("*.js"), UI.rglob("*.html")):
        assert re.findall(r"[\"':]\s*(#[0-9a-fA-F]{3,8})\b", path.read_text()) == [], path


def test_the_tokens_alone_name_colours() -> None:
    rules = re.sub(r"^:root[^{]*\{.*?^\}", "", CSS, flags=re.DOTALL | re.MULTILINE)
    assert re.findall(r"#[0-9a-f]{3,8}\b", rules) == []


@pytest.mark.parametrize("name", TEMPLATES)
def test_every_class_has_a_style(name: str) -> None:
    styled = set(re.findall(r"\.([a-z][\w-]*)", CSS))
    plain = re.sub(r"\{(#.*?#|%.*?%|\{.*?\})\}", " ", TEMPLATES[name], flags=re.DOTALL)
    used = " ".join(re.findall(r'class="([^"]*)"', plain)).split()
    assert set(used) - styled == set()


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize(("text", "ground"), TEXT)
def test_text_can_be_read(theme: str, text: str, ground: str) -> None:
    assert contrast(THEMES[theme][text], THEMES[theme][ground]) >= 4.5


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize(("mark", "ground"), MARKS)
def test_focus_and_state_can_be_seen(theme: str, mark: str, ground: str) -> None:
    assert contrast(THEMES[theme][mark], THEMES[theme][ground]) >= 3
