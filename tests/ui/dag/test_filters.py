"""The address says what is shown, and each link of a view keeps the rest of it."""

from dataclasses import asdict
from urllib.parse import parse_qsl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_ett.ui.clock import Clock
from airflow_ett.ui.dag.filters import Asked, Filters, filters_of
from airflow_ett.ui.dag.period import PERIODS, Period, period_of

NOW = 1_796_000_000 * 10**9
TASKS = ["eval", "t&a=b #?\u202e", "train"]


def _of(query: str, tasks: list[str] = TASKS) -> Filters:
    asked = Asked(**dict(parse_qsl(query.removeprefix("?"))))
    return filters_of(asked, tasks, now_ns=NOW, clock=Clock())


def _ranges() -> st.SearchStrategy[Period]:
    days = st.dates().map(str)
    return st.builds(lambda a, b: period_of("custom", a, b, now_ns=NOW, clock=Clock()), days, days)


@given(
    st.builds(
        Filters,
        period=st.sampled_from(PERIODS) | _ranges(),
        task=st.none() | st.sampled_from(TASKS),
        held=st.booleans(),
        every=st.booleans(),
    )
)
def test_an_address_leads_back_to_its_view(filters: Filters) -> None:
    assert _of(filters.href()) == filters


def test_a_link_keeps_the_other_choices() -> None:
    filters = _of("period=7days&task=train&clock=held&rows=all")
    assert filters.href(held=False) == "?period=7days&task=train&rows=all"
    assert filters.href(period=PERIODS[0]) == "?task=train&clock=held&rows=all"
    assert Filters().href() == "?"


@pytest.mark.parametrize(
    "query",
    ["period=x", "task=none", "task=TRAIN", "clock=paper", "rows=12", "since=1&until=2"],
)
def test_what_there_is_not_is_the_default(query: str) -> None:
    assert _of(query) == Filters()


def test_of_one_task_alone_none_is_chosen() -> None:
    assert _of("task=train", ["train"]).task is None


def test_nothing_is_asked_for_by_default() -> None:
    assert set(asdict(Asked()).values()) == {""}
