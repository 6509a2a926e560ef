"""The last hour and the last day beside the whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from airflow_ett.metric.account.stretches import booked_by_all, overlapping
from airflow_ett.metric.format import apportion
from airflow_ett.metric.phases import Components
from airflow_ett.metric.result import Booked, Window
from airflow_ett.metric.timeline.trace import Stretch, Timeline

_HOUR_NS = 3_600_000_000_000
LENGTHS_NS: Mapping[str, int] = {"1h": _HOUR_NS, "24h": 24 * _HOUR_NS}


def windows(
    timelines: Sequence[Timeline],
    excluded: Sequence[Stretch],
    end_ns: int,
    components: Components,
    *,
    measured: bool,
) -> dict[str, Window]:
    """Return the sliding windows that end where the job's clock stands.

    ``measured`` is false for a job that has no ETT%.
    """
    begin_ns = timelines[0].attempt.begin_ns if timelines else end_ns
    found = {}
    for name, length in LENGTHS_NS.items():
        begin = max(begin_ns, end_ns - length)
        booked = booked_by_all(timelines, [(begin, end_ns)], excluded)
        rest = _rest(timelines, excluded, begin)
        if rest is not None:
            booked = booked - rest.by_place + rest.by_share
        by_component = dict.fromkeys(components, 0)
        for booking, ns in booked.items():
            by_component[booking.component] += ns
        wall, effective = booked.total(), by_component["effective"]
        found[name] = Window(
            begin_ns=begin,
            end_ns=end_ns,
            wall_ns=wall,
            effective_ns=effective,
            ett_pct=100 * effective / wall if measured and wall else None,
            components_ns=by_component,
            split=rest is not None,
        )
    return found


class _Rest(NamedTuple):
    """The rest of an interval of many steps from a moment within it on.

    ``by_place`` is what the convention of where its parts lie books there, ``by_share`` the same
    length in the proportions of the whole interval.
    """

    by_place: Booked
    by_share: Booked


def _rest(timelines: Sequence[Timeline], excluded: Sequence[Stretch], time_ns: int) -> _Rest | None:
    for timeline in overlapping(timelines, time_ns, time_ns + 1):
        interval = timeline.straddling(time_ns)
        if interval is not None:
            begin, end = interval
            if not any(one < end and two > begin for one, two in excluded):
                share = _share(timeline.between(begin, end), end - time_ns)
                return _Rest(timeline.between(time_ns, end), share)
    return None


def _share(booked: Booked, length_ns: int) -> Booked:
    """Return ``length_ns`` of what is booked, in its proportions."""
    bookings = sorted(booked)
    shares = apportion([booked[booking] for booking in bookings], length_ns)
    return Counter(dict(zip(bookings, shares, strict=True)))
