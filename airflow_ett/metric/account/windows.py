"""The last hour and the last day beside the whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from airflow_ett.metric.account.account import Account
from airflow_ett.metric.account.stretches import booked, overlapping, spread, union
from airflow_ett.metric.phases import Components
from airflow_ett.metric.result import Booked, Window

_HOUR_NS = 3_600_000_000_000
LENGTHS_NS: Mapping[str, int] = {"1h": _HOUR_NS, "24h": 24 * _HOUR_NS}


def windows(
    account: Account, begin_ns: int, end_ns: int, components: Components, *, measured: bool
) -> dict[str, Window]:
    """Return the sliding windows that end where the job's clock stands.

    ``measured`` is false for a job that has no ETT%.
    """
    return {
        name: _window(account, max(begin_ns, end_ns - length), end_ns, components, measured)
        for name, length in LENGTHS_NS.items()
    }


def _window(
    account: Account, begin_ns: int, end_ns: int, components: Components, measured: bool
) -> Window:
    found: Booked = Counter()
    split = False
    for number in overlapping(account.timelines, begin_ns, end_ns):
        timeline, excluded = account.timelines[number], account.excluded_in[number]
        attempt = timeline.attempt
        if attempt.begin_ns < begin_ns:
            # What lies before the window is left out as maintenance is.
            before = [(attempt.begin_ns, begin_ns), *account.excluded]
            excluded = spread(timeline, union(before, attempt.begin_ns, attempt.stop_ns))
            split = bool(timeline.straddling(begin_ns))
        found.update(booked(timeline, attempt.begin_ns, attempt.stop_ns, excluded))
    by_component = dict.fromkeys(components, 0)
    for booking, ns in found.items():
        by_component[booking.component] += ns
    wall, effective = found.total(), by_component["effective"]
    return Window(
        begin_ns=begin_ns,
        end_ns=end_ns,
        wall_ns=wall,
        effective_ns=effective,
        ett_pct=100 * effective / wall if measured and wall else None,
        components_ns=by_component,
        split=split,
    )
