"""What the address asks for, and the addresses of other views."""

from datetime import date
from typing import Any
from urllib.parse import parse_qs
from zoneinfo import ZoneInfo

import pytest

from airflow_ett.ui.fleet.choice import ORDERS, Choice, choice_of

TODAY = date(2026, 11, 30)


def _choice(**asked: str) -> Choice:
    nothing = dict.fromkeys(("period", "since", "until", "clock", "sort", "rows"), "")
    return choice_of(**nothing | asked, today=TODAY, zone=ZoneInfo("UTC"))


def _again(href: str) -> Choice:
    """Follow a link."""
    assert href.startswith("?")
    return _choice(**{name: value for name, (value,) in parse_qs(href[1:]).items()})


@pytest.mark.parametrize(
    ("asked", "first", "last", "preset"),
    [
        ({}, "2026-11-01", "2026-11-30", "30days"),
        ({"period": "7days"}, "2026-11-24", "2026-11-30", "7days"),
        ({"period": "90days"}, "2026-09-02", "2026-11-30", "90days"),
        ({"period": "no such"}, "2026-11-01", "2026-11-30", "30days"),
        ({"since": "2026-01-02", "until": "2026-01-05"}, "2026-01-02", "2026-01-05", "range"),
        ({"since": "2026-01-05", "until": "2026-01-02"}, "2026-01-02", "2026-01-05", "range"),
        ({"period": "range"}, "2026-11-01", "2026-11-30", "range"),
        ({"since": "2026-11-10"}, "2026-11-10", "2026-11-30", "range"),
        ({"until": "2026-06-30"}, "2026-06-01", "2026-06-30", "range"),
        ({"since": "2026-11-10", "until": "2099-01-01"}, "2026-11-10", "2026-11-30", "range"),
        ({"since": "2099-01-01", "until": "2099-01-02"}, "2026-11-30", "2026-11-30", "range"),
        ({"since": "1999-01-01", "until": "2026-06-30"}, "2025-06-30", "2026-06-30", "range"),
        ({"since": "0001-01-01", "until": "1970-06-30"}, "2026-11-01", "2026-11-30", "30days"),
        ({"since": "x", "until": "2026-13-40"}, "2026-11-01", "2026-11-30", "30days"),
        ({"period": "7days", "since": "2026-01-02"}, "2026-11-24", "2026-11-30", "7days"),
    ],
)
def test_the_period(asked: dict[str, str], first: str, last: str, preset: str) -> None:
    choice = _choice(**asked)
    assert (choice.period.first, choice.period.last, choice.preset) == (first, last, preset)


def test_the_period_before_is_as_long_and_ends_the_day_before() -> None:
    choice = _choice(since="2026-03-01", until="2026-03-10")
    assert (choice.before.first, choice.before.last) == ("2026-02-19", "2026-02-28")
    assert len(choice.days) == 10
    assert (choice.days[0], choice.days[-1]) == ("2026-03-01", "2026-03-10")
    assert choice.api_query == "days=10&until=2026-03-10"


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"period": "90days", "clock": "held"},
        {"since": "2026-01-02", "until": "2026-01-05", "sort": "-ett", "rows": "all"},
    ],
    ids=["default", "clock", "range"],
)
def test_an_address_opens_the_view_that_it_was_made_of(asked: dict[str, str]) -> None:
    choice = _choice(**asked)
    assert _again(choice.href()) == choice


@pytest.mark.parametrize(("changes"), [{"held": True}, {"every": True}, {"order": "dag"}])
def test_a_link_changes_what_it_says_alone(changes: dict[str, Any]) -> None:
    choice = _choice(period="7days")
    found = _again(choice.href(**changes))
    assert {name: getattr(found, name) for name in changes} == changes
    assert found.period == choice.period


@pytest.mark.parametrize("column", ORDERS)
def test_a_head_sorts_by_its_column_and_then_the_other_way_round(column: str) -> None:
    start = _choice(sort="dag" if column != "dag" else "ett")
    assert start.direction(column) == "none"
    once = _again(start.sorted_by(column))
    assert once.order == ORDERS[column]
    twice = _again(once.sorted_by(column))
    assert {once.direction(column), twice.direction(column)} == {"ascending", "descending"}
    assert _again(twice.sorted_by(column)) == once


def test_an_order_that_is_none_is_the_default() -> None:
    assert _choice(sort="--lost").order == _choice(sort="x").order == "-lost"


def test_days_up_to_the_last_that_has_a_job() -> None:
    found = _again(_choice(period="7days", clock="held").ending("2026-02-10"))
    assert (found.period.first, found.period.last) == ("2026-01-12", "2026-02-10")
    assert found.held
