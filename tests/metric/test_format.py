"""Numbers as people see them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_ett.metric import format as shown

S = 1_000_000_000


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (None, "–"),
        (0, "0 s"),
        (1, "<1 ms"),
        (420_000_000, "420 ms"),
        (999_600_000, "1.0 s"),
        (18_400_000_000, "18.4 s"),
        (59_960_000_000, "1 m 00 s"),
        (860 * S, "14 m 20 s"),
        (3599 * S + S // 2, "1 h 00 m"),
        (83 * 60 * S, "1 h 23 m"),
        (48 * 3600 * S - 29 * S, "2 d 0 h"),
        (76 * 3600 * S, "3 d 4 h"),
        (-5 * S, "\u22125.0 s"),
    ],
)
def test_duration(ns: int | None, text: str) -> None:
    assert shown.duration(ns).replace("\u00a0", " ") == text


@given(st.integers(min_value=0, max_value=10**18))
def test_duration_names_two_units_at_most_and_never_a_full_next_one(ns: int) -> None:
    words = shown.duration(ns).split("\u00a0")
    assert len(words) in (2, 4)
    most = {"ms": 999, "s": 59.9, "m": 59}
    assert float(words[0].lstrip("<")) <= most.get(words[1], 10**9)


def test_percent_change_hours_cursor_and_time() -> None:
    assert (shown.percent(84.04), shown.percent(None)) == ("84.0%", "–")
    assert [shown.change(x) for x in (2.34, -0.1, 0.04, None)] == ["+2.3", "\u22120.1", "±0.0", "–"]
    hour = 3600 * S
    assert [shown.accelerator_hours(h) for h in (9 * hour, 1418 * hour)] == ["9.0", "1,418"]
    assert shown.cursor(789_700_000) == "789.7\u00a0M"
    assert shown.cursor(7) == "7"
    assert shown.instant(1_796_038_564 * S) == "2026-11-30 11:36:04 UTC"
    assert shown.accelerator_hours(None) == shown.cursor(None) == shown.instant(None) == "–"


@given(st.lists(st.integers(min_value=0, max_value=10**17), min_size=1, max_size=30))
def test_shares_add_up_to_exactly_a_hundred(parts: list[int]) -> None:
    texts = shown.shares(parts)
    if sum(parts) == 0:
        assert set(texts) == {"–"}
        return
    tenths = [round(10 * float(text.rstrip("%"))) for text in texts]
    assert sum(tenths) == 1000
    assert all(abs(t - 1000 * p / sum(parts)) <= 1 for t, p in zip(tenths, parts, strict=True))
