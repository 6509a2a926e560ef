"""What a view says, as plain text."""

from collections.abc import Sequence
from typing import Any

from airflow_ett.ui.clock import Clock
from airflow_ett.ui.run.notices import Notice
from airflow_ett.ui.run.view import RunView, run_view

SECOND = 10**9
UTC = Clock()


def view_of(told: Any, *, later_ns: int = SECOND, **changes: Any) -> RunView:
    """Return the view of a job so long after its end; ``changes`` replace parts of its result."""
    result = told.result | changes
    now_ns = result["end_ns"] + later_ns
    return run_view(result, told.phases, UTC, now_ns=now_ns, safe=lambda place: place)


def words(text: str) -> str:
    """Return a text with plain spaces and without marks of direction."""
    return text.replace("\u00a0", " ").replace("\u2068", "").replace("\u2069", "")


def chips(view: RunView) -> list[str]:
    return [words(text) for _, text in view.head.chips]


def facts(view: RunView) -> dict[str, str]:
    return {fact.label: fact.text for fact in view.head.facts}


def leads(notices: Sequence[Notice]) -> list[str]:
    return [words(notice.lead) for notice in notices]


def stats(view: RunView) -> dict[str, tuple[str, ...]]:
    """Return value and lines by label."""
    return {stat.label: tuple(map(words, (stat.value, *stat.lines))) for stat in view.stats}
