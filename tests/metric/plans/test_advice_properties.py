"""What must hold for advice about any jobs, and how long it takes."""

from __future__ import annotations

import json
import random
import time
from itertools import combinations
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_ett.metric import COMPONENTS, measure
from airflow_ett.metric.plans.advice import KEYS, SHOWN, advise
from airflow_ett.metric.plans.advice.gains import saving, together
from airflow_ett.metric.plans.advice.jobs import Jobs
from airflow_ett.metric.plans.advice.levers import LEVERS
from tests.metric.plans.made_jobs import AFTER, CLOSING, STEADY, Result, job, realistic
from tests.metric.plausible_lives import Life

PHASES = (
    *("queue", "device_init", "preproc_creation", "train_module_creation", "first_batch"),
    *("compile", "replay", "train", *AFTER, *STEADY, *CLOSING),
)
LENGTH = st.integers(0, 4000) | st.integers(0, 10**6)


@st.composite
def lives(draw: st.DrawFn) -> list[Result]:
    found = []
    for number in range(draw(st.integers(1, 4))):
        attempts = []
        for _ in range(draw(st.integers(1, 4))):
            attempt: dict[str, Any] = draw(st.dictionaries(st.sampled_from(PHASES), LENGTH))
            attempt["cause"] = draw(st.sampled_from(["application", "out_of_memory", "preempted"]))
            attempt["compiles"] = draw(
                st.lists(
                    st.fixed_dictionaries(
                        {
                            "s": LENGTH,
                            "hits": st.sampled_from([None, 0, 1]),
                            "misses": st.integers(0, 1),
                            "id": st.sampled_from([None, "0/0", "1/0"]),
                            "reason": st.sampled_from([None, "0/0: n == 1", "0/0: odd"]),
                        }
                    ),
                    max_size=3,
                )
            )
            levers = st.sampled_from(["compile_cache", "fast_batch", "parallel_init"])
            attempt["levers"] = [
                {"lever": lever, "outcome": draw(st.sampled_from(["used", "missed"]))}
                for lever in draw(st.sets(levers))
            ]
            attempts.append(attempt)
        found.append(
            job(
                *attempts,
                run=f"r{number}",
                task=draw(st.sampled_from(["a", "b"])),
                accelerators=draw(st.integers(0, 9)),
                begin_s=number,
                nos=draw(st.integers(0, 99)),
            )
        )
    return found


@settings(deadline=None)
@given(lives())
def test_no_gain_is_more_than_was_lost(found: list[Result]) -> None:
    advised = advise(found)
    jobs = Jobs(found)
    most = jobs.points(jobs.wall - jobs.effective)
    lost_ns = sum(r["wall_ns"] - r["effective_ns"] for r in jobs.results)
    held_ns = sum((r["wall_ns"] - r["effective_ns"]) * r["accelerators"] for r in jobs.results)
    for item in advised.items:
        assert item.key in KEYS
        assert item.component in COMPONENTS
        assert 0.1 <= item.points <= most * (1 + 1e-9)
        assert 0 < item.saved_ns <= lost_ns
        assert 0 <= item.saved_accelerator_ns <= held_ns
        assert set(item.runs) <= {r["run_id"] for r in jobs.results}
        assert item.runs
    best = advised.items[:SHOWN]
    if len(best) < 2:
        assert advised.together_points is None
    else:
        assert advised.together_points is not None
        assert max(i.points for i in best) <= advised.together_points * (1 + 1e-9)
        assert advised.together_points <= most * (1 + 1e-9)


@settings(deadline=None)
@given(lives())
def test_together_they_save_at_most_the_sum(found: list[Result]) -> None:
    jobs = Jobs(found)
    proposals = [one for lever in LEVERS.values() if (one := lever(jobs))]
    alone = [saving(jobs, one) for one in proposals]
    rounding = sum(len(piece.phases) * piece.weight for piece in jobs.pieces)
    for proposal, gain in zip(proposals, alone, strict=True):
        assert set(gain.by_phase) <= set(proposal.phases)
        assert min([0, *gain.by_phase.values()]) == 0
    for count in (1, 2, 3):
        for chosen in combinations(range(len(proposals)), count):
            whole = together(jobs, [proposals[i] for i in chosen])
            parts = [alone[i].weighed.total() for i in chosen]
            assert max(parts) - rounding <= whole <= sum(parts)
            assert whole <= jobs.wall - jobs.effective


@settings(deadline=None)
@given(lives(), st.randoms())
def test_the_order_of_jobs_is_without_meaning(found: list[Result], chance: random.Random) -> None:
    other = found.copy()
    chance.shuffle(other)
    assert advise(other) == advise(found)


def test_whatever_was_measured_can_be_advised() -> None:
    found = [measure(Life(seed).tell()).as_dict() for seed in range(150)]
    stored = json.loads(json.dumps(found))
    for number, result in enumerate(stored):
        stored[number] = result | {"job": str(number)}
        assert all(0 < item.points <= 100 for item in advise([stored[number]]).items)
    assert advise(stored).items


def test_five_hundred_jobs_are_advised_in_a_moment() -> None:
    found = realistic(500)
    advise(found)
    took = []
    for _ in range(5):
        begin = time.process_time()
        advised = advise(found)
        took.append(time.process_time() - begin)
    assert len(advised.items) > 5
    assert min(took) < 0.3
