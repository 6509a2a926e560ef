"""Of claims that overlap the innermost is kept, so that no moment is booked twice."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush

from airflow_ett.metric.evidence.lanes import Claim


def cut(claims: Iterable[Claim], begin_ns: int, stop_ns: int) -> list[Claim]:
    """Return what of the claims lies in ``[begin_ns, stop_ns)``."""
    kept = []
    for claim in claims:
        begin, end = max(claim.begin_ns, begin_ns), min(claim.end_ns, stop_ns)
        if begin < end:
            kept.append(Claim(begin, end, claim.phase, claim.opened_ns))
    return kept


def innermost(claims: list[Claim]) -> list[Claim]:
    """Return disjoint claims in order of time; of overlapping ones the innermost is kept."""
    claims.sort()
    active: list[tuple[int, int, str]] = []
    result: list[Claim] = []
    at = index = 0
    while index < len(claims) or active:
        if not active:
            at = max(at, claims[index].begin_ns)
        while index < len(claims) and claims[index].begin_ns <= at:
            claim = claims[index]
            heappush(active, (-claim.opened_ns, claim.end_ns, claim.phase))
            index += 1
        while active and active[0][1] <= at:
            heappop(active)
        if active:
            opened, end, phase = active[0]
            if index < len(claims):
                end = min(end, claims[index].begin_ns)
            result.append(Claim(at, end, phase, -opened))
            at = end
    return result
