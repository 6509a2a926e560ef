"""The innermost claim wins, moment by moment."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_ett.metric.evidence.lanes import Claim
from airflow_ett.metric.timeline.innermost import cut, innermost

CLAIMS = st.lists(
    st.builds(
        lambda begin, length, phase, opened: Claim(begin, begin + length, phase, opened),
        st.integers(0, 20),
        st.integers(1, 12),
        st.sampled_from("abc"),
        st.integers(-1, 20),
    ),
    max_size=9,
)


def winner(claims: list[Claim], moment: int) -> str | None:
    """The phase of the claim that began last; of several, of the shorter one."""
    around = [claim for claim in claims if claim.begin_ns <= moment < claim.end_ns]
    best = min(around, key=lambda one: (-one.opened_ns, one.end_ns, one.phase), default=None)
    return None if best is None else best.phase


def painted(claims: list[Claim]) -> dict[int, list[tuple[str, int]]]:
    """All that is claimed, moment by moment."""
    held: dict[int, list[tuple[str, int]]] = {}
    for claim in claims:
        for moment in range(claim.begin_ns, claim.end_ns):
            held.setdefault(moment, []).append((claim.phase, claim.opened_ns))
    return held


@settings(max_examples=1000, deadline=None)
@given(CLAIMS)
def test_every_moment_goes_to_the_innermost(claims) -> None:
    found = innermost([*claims])
    assert all(one.end_ns <= two.begin_ns for one, two in pairwise(found))
    assert all(claim.begin_ns < claim.end_ns for claim in found)
    assert {t: [phase for phase, _ in held] for t, held in painted(found).items()} == {
        t: [phase] for t in range(40) if (phase := winner(claims, t)) is not None
    }


@settings(max_examples=300, deadline=None)
@given(CLAIMS, st.integers(0, 30), st.integers(0, 30))
def test_a_cut_keeps_what_lies_within(claims, begin, stop) -> None:
    kept = cut(claims, begin, stop)
    assert all(begin <= claim.begin_ns < claim.end_ns <= stop for claim in kept)
    within = {moment: held for moment, held in painted(claims).items() if begin <= moment < stop}
    assert painted(kept) == within
