"""What stands beside the partition: positions, the held clock, whose a recovery is, live views."""

from __future__ import annotations

import pytest

from airflow_ett.metric import measure

A2, A3 = (2, 0, 0), (3, 0, 0)
S = 10**9


def test_each_recovery_says_whose_it_is(history) -> None:
    """Which attempt was cut short, which layer began the next one, and what it cost in training.

    The second attempt died before anything told from where it goes on; the third resumes at 60, so
    the 30 s from 60 to 90 are lost, once.
    """
    history.open("local").submit(0).session(0, 0).train(0, 90, (0, 90)).ended(90, "infrastructure")
    history.submit(100, 2, "relaunch").session(100, 101, A2, hwm=90)
    history.add("failure", 110, {"exit_code": 1}, attempt=A2, rank=0).ended(110, "application", A2)
    history.submit(120, 3, "airflow", 2).session(120, 121, A3, hwm=90)
    resumed = {"checkpoint": "file:///c/60", "cursor": 60, "hwm": 90}
    history.add("resumed", 122, resumed, attempt=A3, rank=0)
    history.steps(122, 152, (60, 90), A3, steps=30).train(152, 162, (90, 100), A3)
    history.session_ended(162, attempt=A3).ended(162, None, A3).job_ended(162)
    first, second = history.measure().as_dict()["ttr"]
    assert first.pop("utt_ns") + second.pop("utt_ns") == 30 * S
    assert first == {
        "ns": 20 * S,
        "recovered": False,
        "cause": "infrastructure",
        "layer": "relaunch",
        "attempt": [1, 0, 0],
    }
    assert second == {
        "ns": 42 * S,
        "recovered": True,
        "cause": "application",
        "layer": "airflow",
        "attempt": [2, 0, 0],
    }


def test_positions(second_example) -> None:
    """Each bucket by phase; A lies 1 s behind the first step's begin, at 11."""
    metric = second_example.measure()
    found = {bucket: dict(phases) for bucket, phases in metric.positions_ns.items()}
    assert {b: {n: ns / S for n, ns in p.items() if ns} for b, p in found.items()} == {
        "effective": {"train": 122},
        "start": {"device_init": 10},
        "recovery": {
            "failure_detection": 6,
            "retry_wait": 14,
            "launcher_init": 4,
            "trainer_init": 6,
            "checkpoint_restore": 38,
        },
        "steady": {},
        "shutdown": {},
    }
    assert metric.time_to_first_advance_ns == 11 * S


def test_planned_maintenance_leaves_numerator_and_denominator(second_example) -> None:
    """107-117 of a recovery and 150-160 of the next one's restore; then 20-30 of the training."""
    events = second_example.events
    metric = measure(events, exclude=[(150 * S, 160 * S), (107 * S, 117 * S)])
    assert (metric.excluded_ns, metric.wall_ns) == (20 * S, 180 * S)
    assert [recovery.ns for recovery in metric.ttr] == [20 * S, 28 * S]
    assert metric.ett_pct == pytest.approx(100 * 122 / 180)
    metric = measure(events, exclude=[(20 * S, 30 * S)])
    assert (metric.wall_ns, metric.effective_ns) == (190 * S, 112 * S)
    assert metric.ett_pct == pytest.approx(100 * 112 / 190)


def test_the_held_clock_by_component(history, in_seconds) -> None:
    """Preempted in the queue: of the first submission nothing is held, of the second all but it."""
    history.open().submit(0).state(30, state="CANCELLED", ended=28).ended(31, "preempted")
    history.submit(33, 2, "relaunch").state(36, 2, allocated=35)
    history.session(36, 37, A2).train(38, 48, (0, 10), A2)
    history.session_ended(48, attempt=A2).ended(48, None, A2)
    metric = history.job_ended(48).measure()
    held = {name: time for name, time in in_seconds(metric.held_components_ns).items() if time}
    assert held == {"scheduling": 1, "trainer_init": 2, "effective": 10}


def test_the_slowest_rank_of_each_phase(history) -> None:
    history.open("local").submit(0).session(0, 1).session(0, 2, rank=1)
    history.phase("first_batch", 2, 4).steps(4, 21, (0, 1))
    history.phase("train_module_creation", 3, 15, rank=1).phase("first_batch", 15, 20, rank=1)
    history.steps(20, 21, (0, 1), rank=1).session_ended(21).ended(21, None).job_ended(21)
    slowest = history.measure().attempts[0].slowest
    assert slowest["train_module_creation"] == (1, 12 * S, "n1")
    assert slowest["first_batch"] == (1, 5 * S, "n1")


def test_an_attempts_hosts_are_the_schedulers_names_and_else_what_they_call_themselves(
    history,
) -> None:
    history.open().submit(0).state(2, allocated=1)
    for node, host in ((1, "n2.cluster"), (0, "n1.cluster"), (2, "n3.cluster")):
        process = {"role": "agent", "host": host, "node": node}
        history.add("process_started", 2, process, attempt=(1, 0, 0), writer=f"agent-n{node}")
    assert history.measure().attempts[0].hosts == ("n1.cluster", "n2.cluster", "n3.cluster")
    told = {"submission": 1, "state": "RUNNING", "hosts": ["n1", None, "n3"]}
    attempt = history.add("scheduler_state", 3, told).measure().attempts[0]
    assert attempt.hosts == ("n1", "n2.cluster", "n3")
    assert attempt.host == "n1"
    assert attempt.as_dict()["hosts"] == ["n1", "n2.cluster", "n3"]


def test_a_straggler_is_told_with_the_host_it_ran_on(history) -> None:
    """Its agent tells of a rank that has no log."""
    history.open("local").submit(0).session(0, 1).phase("first_batch", 2, 4)
    agent = {"role": "agent", "host": "b", "node": 1}
    history.add("process_started", 0, agent, attempt=(1, 0, 0), writer="agent-n1")
    told = {"submission": 1, "state": "RUNNING", "hosts": ["n1", "n2"]}
    history.add("scheduler_state", 1, told)
    ended = {"role": "trainer", "spent": {"phases": {"first_batch": 9 * S}}}
    history.add("process_ended", 21, ended, attempt=(1, 0, 0), rank=3, writer="agent-n1")
    slowest = history.measure().attempts[0].slowest
    assert slowest["first_batch"] == (3, 9 * S, "n2")


def test_hosts_that_cannot_be_read_are_left_out(history) -> None:
    told = {"submission": 1, "state": "RUNNING", "hosts": [7, "", "n3"]}
    history.open("local").submit(0).session(0, 1).add("scheduler_state", 3, told)
    history.add("scheduler_state", 4, {"submission": 1, "state": "RUNNING", "hosts": "n1"})
    assert history.measure().attempts[0].hosts == ("n1", "n3")


def test_a_rank_without_a_log_may_be_the_slowest(history) -> None:
    """Its agent tells what it spent; what cannot be read counts as nothing."""
    history.open("local").submit(0).session(0, 1)
    history.phase("first_batch", 2, 4).phase("evaluation", 4, 9).steps(9, 21, (0, 1))
    phases = {"first_batch": 3 * S, "evaluation": 4 * S, "device_init": "long"}
    spent = {"phases": phases, "steps": 1, "step_ns": 5 * S, "wait_ns": 7 * S}
    for rank, told in ((5, spent), (6, {"phases": 9}), (7, "much")):
        data = {"role": "trainer", "spent": told}
        history.add("process_ended", 21, data, attempt=(1, 0, 0), rank=rank)
    history.session_ended(21).ended(21, None).job_ended(21)
    slowest = history.measure().attempts[0].slowest
    assert slowest == {
        "first_batch": (5, 3 * S, None),
        "evaluation": (0, 5 * S, "n1"),
        "data_wait": (5, 7 * S, None),
    }


def test_a_live_job_that_hangs_shows_no_progress_and_books_none(history) -> None:
    """The agent beats, nobody says ``stalled``: shown as no progress since 14, not booked."""
    history.open().submit(0).state(2, allocated=1).session(2, 3).train(4, 14, (0, 10))
    metric = history.measure(now=100, sign=99)
    assert (metric.current_phase, metric.progress_ns) == ("unattributed", 14 * S)
    assert metric.phases_ns["unattributed"] == 86 * S
    assert "stalled" not in metric.phases_ns
    assert metric.at_risk_ns == 10 * S
    saving = history.phase("checkpoint_save", 100, None).measure(now=101)
    assert saving.current_phase == "checkpoint_save"


def test_the_last_hour(history) -> None:
    """Two hours, of which a save took 90 s in the second: 3510 of 3600, and 7110 of 7200."""
    history.open("local").submit(0).session(0, 0).train(0, 3600, (0, 3600))
    history.steps(3600, 5400, (3600, 5400), steps=1800).phase("checkpoint_save", 5400, 5490)
    history.steps(5490, 7200, (5400, 7110), steps=1710)
    windows = history.measure(now=7200).windows
    found = {name: (w.wall_ns // S, w.effective_ns // S) for name, w in windows.items()}
    assert found == {"1h": (3600, 3510), "24h": (7200, 7110)}
    assert windows["1h"].ett_pct == pytest.approx(97.5)
    assert windows["1h"].components_ns["wasted"] == 90 * S
