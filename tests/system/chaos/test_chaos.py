"""Thirty injections into trainings that run side by side: nothing runs twice, nothing is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.system.chaos.plan import DAEMONS, PER_TRAINING, Moment, Target, plan
from tests.system.chaos.run import Run, speaker

COUNT, SEED = 30, 1
LOCAL_TARGETS = set(Target) - DAEMONS - {Target.BATCH, Target.PREEMPT}


def test_a_plan_follows_from_its_seed_and_has_all_kinds() -> None:
    courses = plan(11, COUNT)
    assert courses == plan(11, COUNT)
    assert courses != plan(12, COUNT)
    assert len(courses) == COUNT // PER_TRAINING
    done = [injection for course in courses for injection in course.injections]
    assert len(done) == COUNT
    assert {injection.target for injection in done} == LOCAL_TARGETS
    for course in courses:
        targets = [injection.target for injection in course.injections]
        assert targets.count(Target.MARK_FAILED) == course.marked
        assert all(i.moment is not Moment.END for i in course.injections[:-1])


@pytest.mark.airflow
@pytest.mark.timeout(600)
def test_nothing_runs_twice_is_orphaned_or_lost(tmp_path: Path) -> None:
    good, tally = Run(tmp_path, courses=plan(SEED, COUNT), seed=SEED, say=speaker())()
    print(tally)
    assert good, tally
