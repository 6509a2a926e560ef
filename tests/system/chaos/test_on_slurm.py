"""Four injections into trainings on a real Slurm: nothing runs twice, nothing is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.slurm.cluster import missing
from tests.system.chaos.plan import (
    DAEMONS,
    SLURM,
    Course,
    Injection,
    Mode,
    Moment,
    Target,
    plan,
)
from tests.system.chaos.run import Run, speaker

COUNT, SEED = 40, 1

# slurmctld saves every five seconds: what runs is told by then, and nothing begins or ends just
# before it is killed, which Slurm would find out by timeouts of its own, a minute later.
COURSES = (
    Course(
        0,
        Mode.HELD,
        (
            Injection(Target.SLURMCTLD, "killed", Moment.SAVING, 6.0),
            Injection(Target.TASK, "", Moment.END, 0.1),
        ),
        requeues=True,
    ),
    Course(
        1,
        Mode.DEFERRED,
        (
            Injection(Target.SLURMD, "daemon", Moment.ANY, 9.0),
            Injection(Target.TRAINER, "", Moment.SAVING, 0.1),
        ),
        requeues=False,
    ),
)


def test_a_plan_for_slurm_has_its_daemons_and_both_who_start_again() -> None:
    courses = plan(SEED, COUNT, SLURM)
    assert courses == plan(SEED, COUNT, SLURM)
    done = [injection for course in courses for injection in course.injections]
    assert len(done) == COUNT
    assert {i.target for i in done} == set(Target) - {Target.LOCAL_SUPERVISOR}
    assert {i.target for i in done} >= DAEMONS
    assert {(course.mode, course.requeues) for course in courses} == {
        (mode, requeues) for mode in Mode for requeues in (True, False)
    }


@pytest.mark.airflow
@pytest.mark.slurm
@pytest.mark.timeout(300)
@pytest.mark.skipif(missing() is not None, reason=f"no Slurm: {missing()}")
def test_nothing_runs_twice_is_orphaned_or_lost_on_slurm(tmp_path: Path) -> None:
    good, tally = Run(tmp_path, courses=COURSES, seed=SEED, say=speaker(), scheduler=SLURM)()
    print(tally)
    assert good, tally
