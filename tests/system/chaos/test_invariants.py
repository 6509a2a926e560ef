"""Each check finds what it is there for, and nothing in a good training's files."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from airflow_ett.checkpoints import commit, folder_name
from airflow_ett.demo.processes import MARKER, of_stack
from airflow_ett.events import AttemptId, Kind, LogWriter, trainer_writer
from tests.system.chaos import invariants
from tests.system.chaos.driver import Blow, Drive
from tests.system.chaos.plan import Course, Injection, Mode, Moment, Target
from tests.system.chaos.view import View

SECOND = 1_000_000_000
BEGIN = 1_790_000_000 * SECOND
PID, GOAL = 4_100_001, 40
"""No process has that number: they end at 2 to the 22nd."""

Check = Callable[[Drive], Iterator[str]]


def at(seconds: float) -> int:
    return BEGIN + int(seconds * SECOND)


class Good:
    """A training that was killed at cursor 20, went on from 10 and ended at its goal."""

    def __init__(self, home: Path) -> None:
        kill = Injection(Target.TRAINER, "", Moment.ANY, 0.0)
        self.drive = Drive(View(Course(0, Mode.HELD, (kill,)), home), state="success")
        self.drive.blows.append(Blow(kill, at(9), 1, True, [PID]))
        self.view = self.drive.view
        self.view.place.mkdir(parents=True)
        (self.view.place / "goal").write_text(str(GOAL))
        self.launcher = LogWriter(
            self.view.run_dir.launcher / "e00000001.jsonl", job="j", writer="launcher-1"
        )
        key = {"dag_id": "d", "run_id": "r", "task_id": "t", "deployment": "x", "map_index": -1}
        self.tell(Kind.JOB_OPENED, 0, key={**key, "generation": 1}, accelerators=0)
        self.submit(1, 0)
        self.train(1, 0, 20, 1)
        self.end(1, 10, "infrastructure")
        self.submit(2, 10)
        self.train(2, 10, GOAL, 11)
        self.end(2, 20, None)
        self.tell(Kind.JOB_ENDED, 20, state="succeeded", cause=None)

    def tell(self, kind: Kind, seconds: float, number: int | None = None, **data: object) -> None:
        attempt = AttemptId(number) if number else None
        self.launcher.append(kind, data, time_ns=at(seconds), attempt=attempt)

    def submit(self, number: int, seconds: float) -> None:
        self.tell(Kind.SUBMIT_INTENDED, seconds, submission=number)
        layer = "first" if number == 1 else "relaunch"
        self.tell(Kind.SUBMITTED, seconds, number, submission=number, handle="h", layer=layer)

    def end(self, number: int, seconds: float, cause: str | None) -> None:
        self.tell(Kind.ATTEMPT_ENDED, seconds, number, cause=cause, evidence={})

    def train(self, number: int, start: int, stop: int, seconds: float) -> None:
        attempt, pid = AttemptId(number), PID + number
        writer = trainer_writer(attempt, 0, pid)
        path = self.view.run_dir.nodes / f"{writer}.jsonl"
        log = LogWriter(path, job="j", writer=writer, attempt=attempt, rank=0)
        log.append(Kind.PROCESS_STARTED, {"role": "trainer", "pid": pid}, time_ns=at(seconds))
        log.append(Kind.SESSION_STARTED, {"cursor_hwm": start}, time_ns=at(seconds))
        if start:
            log.append(Kind.RESUMED, {"cursor": start, "hwm": 20}, time_ns=at(seconds))
        times = {"from": at(seconds), "to": at(seconds + 8)}
        steps = {"cursor_from": start, "cursor_to": stop, "steps": stop - start}
        spent = {"step_ns": 8 * SECOND, "wait_ns": 0, "other_ns": 0}
        log.append(Kind.INTERVAL, {**times, **steps, **spent}, time_ns=at(seconds + 8))
        saved = 10 if number == 1 else GOAL
        committed = {"cursor": saved, "checkpoint": "c"}
        log.append(Kind.CHECKPOINT_COMMITTED, committed, time_ns=at(seconds + 8))
        folder = self.view.run_dir.checkpoints / folder_name(saved, attempt)
        folder.mkdir(parents=True)
        commit(folder, job="j", attempt=attempt, epoch=1, cursor=saved)
        if number == 2:
            log.append(Kind.SESSION_ENDED, {"outcome": "success"}, time_ns=at(seconds + 8))
        with (self.view.place / "starts").open("a") as starts:
            starts.write(f"{pid} {at(seconds)} {attempt} {start}\n")
        (self.view.place / f"trained-{pid}").write_text(str(stop))


@pytest.fixture
def good(tmp_path: Path) -> Good:
    return Good(tmp_path)


def test_nothing_is_found_in_a_good_training(good: Good) -> None:
    assert {name: list(check(good.drive)) for name, check in invariants.CHECKS.items()} == {
        name: [] for name in invariants.CHECKS
    }
    assert list(invariants.tasks(good.drive)) == []


def overlap(good: Good) -> None:
    (good.view.place / "wrong").write_text("2 0 overlaps with 1\n")


def second_lease(good: Good) -> None:
    lease = good.view.run_dir.checkpoints / ".lease" / "00000003.json"
    lease.parent.mkdir()
    lease.touch()


def twice_the_attempt(good: Good) -> None:
    with (good.view.place / "starts").open("a") as starts:
        starts.write(f"{PID} 0 2.0.0 40\n")


def another_state(good: Good) -> None:
    good.drive.state = "failed"


def second_end(good: Good) -> None:
    good.tell(Kind.JOB_ENDED, 21, state="succeeded", cause=None)


def no_end(good: Good) -> None:
    good.submit(3, 20)


def missing_number(good: Good) -> None:
    good.launcher.next_seq += 1
    good.tell(Kind.CLAIMED, 21, owner="host:1", mode="task")


def torn_middle(good: Good) -> None:
    with good.launcher.path.open("a") as log:
        log.write('{"half a line\n{}\n')


def untold_step(good: Good) -> None:
    (good.view.place / f"trained-{PID + 2}").write_text(str(GOAL + 1))


def nobody_killed(good: Good) -> None:
    good.drive.blows.clear()


def killed_and_succeeded(good: Good) -> None:
    good.drive.blows.append(Blow(good.drive.blows[0].injection, at(15), 2, True, [PID]))


def cleared_in_vain(good: Good) -> None:
    clear = Injection(Target.CLEAR, "", Moment.ANY, 0.0)
    good.drive.blows.append(Blow(clear, at(15), 2, True, []))


def cancelled_twice(good: Good) -> None:
    for _ in range(2):
        good.tell(Kind.CANCEL_REQUESTED, 19, 2, submission=2, reason="user_cancelled")


def lost_checkpoint(good: Good) -> None:
    saved = {"cursor": GOAL + 5, "checkpoint": "c"}
    good.launcher.append(Kind.CHECKPOINT_COMMITTED, saved, attempt=AttemptId(2))


def other_goal(good: Good) -> None:
    (good.view.place / "goal").write_text(str(GOAL + 1))


WRONGS: list[tuple[Check, Callable[[Good], None], str]] = [
    (invariants.duplicates, overlap, "overlaps"),
    (invariants.duplicates, second_lease, "leases"),
    (invariants.duplicates, twice_the_attempt, "another trainer of attempt 2.0.0"),
    (invariants.ends, another_state, "not success"),
    (invariants.ends, second_end, "not once"),
    (invariants.ends, no_end, "attempt 3.0 has 0 ends"),
    (invariants.lost_events, missing_number, "lacks"),
    (invariants.lost_events, torn_middle, "e00000001"),
    (invariants.lost_events, untold_step, "came to 41"),
    (invariants.verdicts, nobody_killed, "nothing done to it explains"),
    (invariants.verdicts, killed_and_succeeded, "which succeeded"),
    (invariants.clears, cleared_in_vain, "did not restart submission 2"),
    (invariants.cancels, cancelled_twice, "cancelled 2 times"),
    (invariants.progress, lost_checkpoint, "though 45 was committed"),
    (invariants.progress, other_goal, "its goal was 41"),
]


@pytest.mark.parametrize(("check", "do", "words"), WRONGS, ids=[do.__name__ for _, do, _ in WRONGS])
def test_a_wrong_is_found(good: Good, check: Check, do: Callable[[Good], None], words: str) -> None:
    do(good)
    assert words in " ".join(check(good.drive))


def requeued(good: Good, cause: str) -> None:
    """Slurm has started the second submission again, and the run before ended by a cause."""
    restart = {"submission": 2, "raw": "RUNNING", "state": "RUNNING", "restart": 1}
    run = AttemptId(2, 1)
    good.launcher.append(Kind.SCHEDULER_STATE, restart, time_ns=at(15), attempt=run)
    good.launcher.append(Kind.ATTEMPT_ENDED, {"cause": cause}, time_ns=at(15), attempt=run)
    with (good.view.place / "starts").open("a") as starts:
        starts.write(f"{PID} {at(14)} {run} {GOAL}\n")


def test_each_run_that_a_scheduler_begins_has_an_end_of_its_own(good: Good) -> None:
    assert good.view.attempts() == [(1, 0), (2, 0)]
    requeued(good, "preempted")
    assert good.view.attempts() == [(1, 0), (2, 0), (2, 1)]
    assert list(invariants.ends(good.drive)) == []
    restart = {"submission": 2, "raw": "RUNNING", "state": "RUNNING", "restart": 2}
    good.launcher.append(Kind.SCHEDULER_STATE, restart, time_ns=at(16), attempt=AttemptId(2, 2))
    assert list(invariants.ends(good.drive)) == ["attempt 2.2 has 0 ends"]


def test_what_slurmctld_forgot_may_run_again_but_not_for_long(good: Good) -> None:
    (good.view.place / "wrong").write_text(f"2 {at(15)} overlaps with 1\n")
    with (good.view.place / "starts").open("a") as starts:
        starts.write(f"{PID} {at(15)} 2.0.0 40\n")
    assert len(list(invariants.duplicates(good.drive))) == 2
    killed = Injection(Target.SLURMCTLD, "killed", Moment.ANY, 0.0)
    good.drive.beside.append(Blow(killed, at(10), 7, True, []))
    assert list(invariants.duplicates(good.drive)) == []
    good.submit(3, 12)
    good.train(3, GOAL, GOAL + 5, 14)
    assert list(invariants.duplicates(good.drive)) == []
    good.drive.beside.clear()
    assert "attempt 3.0.0 trained while 2.0.0 did" in invariants.duplicates(good.drive)


def test_what_slurmctld_forgot_may_be_hit_without_a_trace(good: Good) -> None:
    killed_and_succeeded(good)
    wrong = "trainer any time + 0.00 s killed submission 2, which succeeded"
    assert list(invariants.verdicts(good.drive)) == [wrong]
    killed = Injection(Target.SLURMCTLD, "killed", Moment.ANY, 0.0)
    good.drive.beside.append(Blow(killed, at(14), 7, True, []))
    assert list(invariants.verdicts(good.drive)) == []


def test_a_mark_need_not_wait_for_an_end_that_was_asked_for(good: Good) -> None:
    mark = Injection(Target.MARK_FAILED, "", Moment.ANY, 0.0)
    good.view.course = Course(0, Mode.HELD, (mark,))
    good.submit(3, 20)
    assert "attempt 3.0 has 0 ends" in invariants.ends(good.drive)
    good.tell(Kind.CANCEL_REQUESTED, 20, 3, submission=3, reason="user_cancelled")
    assert "attempt 3.0 has 0 ends" not in invariants.ends(good.drive)


@pytest.mark.parametrize(
    ("target", "variant", "cause", "explains"),
    [
        (Target.SLURMD, "node", "infrastructure", True),
        (Target.SLURMD, "daemon", "infrastructure", False),
        (Target.PREEMPT, "", "preempted", True),
        (Target.PREEMPT, "", "infrastructure", False),
        (Target.SLURMCTLD, "killed", "vanished", True),
        (Target.SLURMCTLD, "stopped", "vanished", False),
        (Target.SLURMDBD, "", "vanished", False),
    ],
)
def test_what_befell_a_node_or_slurm_itself_explains_an_end_elsewhere(
    good: Good, target: Target, variant: str, cause: str, explains: bool
) -> None:
    requeued(good, cause)
    good.drive.blows.clear()
    wrong = f"attempt 2.1.0 ended by {cause}, which nothing done to it explains"
    assert wrong in invariants.verdicts(good.drive)
    good.drive.beside.append(Blow(Injection(target, variant, Moment.ANY, 0.0), at(14), 7, True, []))
    assert (wrong not in invariants.verdicts(good.drive)) is explains


def test_without_its_slurmd_a_run_may_not_come_to_its_trainer(good: Good) -> None:
    requeued(good, "infrastructure")
    good.drive.blows.clear()
    daemon = Injection(Target.SLURMD, "daemon", Moment.ANY, 0.0)
    good.drive.beside.append(Blow(daemon, at(14), 7, True, []))
    wrong = "attempt 2.1.0 ended by infrastructure, which nothing done to it explains"
    assert wrong in invariants.verdicts(good.drive)
    starts = good.view.place / "starts"
    starts.write_text("".join(starts.read_text().splitlines(keepends=True)[:-1]))
    assert wrong not in invariants.verdicts(good.drive)


def test_a_process_of_a_job_that_ended_is_an_orphan(good: Good) -> None:
    environ = {MARKER: str(good.view.home), "JOB": str(good.view.run_dir.path)}
    with subprocess.Popen(["sleep", "60"], env={**os.environ, **environ}) as child:
        try:
            (found,) = invariants.orphans(good.drive, of_stack(good.view.home))
        finally:
            child.kill()
    assert found == f"process {child.pid} lives: sleep 60"
    assert list(invariants.orphans(good.drive, of_stack(good.view.home))) == []


def test_a_view_shows_the_newest_claim_and_submission(good: Good) -> None:
    folder = good.view.run_dir.launcher / "claims"
    folder.mkdir()
    for number, mode in ((1, "task"), (2, "trigger")):
        (folder / f"{number:08d}.json").write_text(json.dumps({"mode": mode}))
    claim = good.view.newest_claim()
    assert claim is not None
    assert (claim["number"], claim["mode"]) == (2, "trigger")
    assert good.view.newest_intent() is None
