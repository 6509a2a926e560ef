"""Lives that were cut short and went on, with every number computed by hand."""

from __future__ import annotations

import pytest

A2 = (2, 0, 0)


def test_second_example_of_the_definition(second_example, told) -> None:
    """10 + 90 + 30 + 38 + 32 = 200, with two recoveries of 30 and 38."""
    metric = second_example.measure()
    assert told(metric) == {
        "attempts": [
            {"device_init": 10, "train": 90, "failure_detection": 5, "retry_wait": 5},
            {
                "launcher_init": 2,
                "trainer_init": 3,
                "checkpoint_restore": 15,
                "failure_detection": 1,
                "retry_wait": 9,
            },
            {"launcher_init": 2, "trainer_init": 3, "checkpoint_restore": 23, "train": 32},
        ],
        "components": {"scheduling": 14, "trainer_init": 58, "effective": 122, "wasted": 6},
        "levels": {"start": 10, "recovery": 68, "effective": 122},
        "layers": {"relaunch": 1, "airflow": 1},
        "causes": {"infrastructure": 1, "application": 1},
        "tts": 10,
        "ttr": [(30, False), (38, True)],
        "utt": 0,
        "held": 180,
        "wall": 200,
        "quality": ["complete"],
    }
    assert metric.ett_pct == metric.ett_pct_paper == pytest.approx(61.0)
    assert metric.ett_pct_held == pytest.approx(100 * 122 / 180)


def test_a_users_clear_is_no_failure_but_a_recovery(history, told) -> None:
    """Cut short by the signal at 15, advancing again at 26: 11 s, of which 1 s is effective."""
    history.open().submit(0).state(2, allocated=1).session(2, 3).train(4, 14, (0, 10))
    history.add("user_restart", 14, {"try": 2})
    history.add("cancel_requested", 14, {"submission": 1, "reason": "user_restart"})
    history.add("signal", 15, {"signal": 15}, attempt=(1, 0, 0), rank=0)
    history.phase("checkpoint_save", 15, 18)
    history.add("process_ended", 19, {}, attempt=(1, 0, 0), rank=0).ended(20, "user_restart")
    history.submit(21, 2, "airflow", 2).state(22, 2, allocated=22)
    history.session(23, 24, A2, hwm=10).train(25, 35, (10, 20), A2)
    history.session_ended(35, attempt=A2).ended(35, None, A2)
    metric = history.job_ended(35).measure()
    assert told(metric) == {
        "attempts": [
            {
                "queue": 1,
                "hardware_setup": 1,
                "launcher_init": 1,
                "trainer_init": 1,
                "train": 10,
                "unattributed": 1,
                "checkpoint_save": 3,
                "shutdown": 1,
                "retry_wait": 2,
            },
            {
                "queue": 1,
                "hardware_setup": 1,
                "launcher_init": 1,
                "trainer_init": 1,
                "train": 10,
            },
        ],
        "components": {
            "scheduling": 6,
            "trainer_init": 4,
            "effective": 20,
            "wasted": 3,
            "shutdown": 1,
            "unattributed": 1,
        },
        "levels": {"start": 4, "recovery": 10, "steady": 1, "effective": 20},
        "layers": {},
        "causes": {},
        "tts": 4,
        "ttr": [(10, True)],
        "utt": 0,
        "held": 31,
        "wall": 35,
        "quality": ["complete"],
    }
    assert [recovery.cause for recovery in metric.ttr] == ["user_restart"]


def test_an_elastic_restart(history, told) -> None:
    """The workers die and start again on the machines they have: no queue, no set-up.

    The second attempt begins with its first sign of life, at 17. It repeats the 4 steps that were
    trained (1 s each) and not saved.
    """
    e1 = (1, 0, 1)
    history.open().submit(0).state(3, allocated=2).session(3, 4).train(5, 15, (0, 10))
    history.add("failure", 16, {"exit_code": 1}, attempt=(1, 0, 0), rank=0)
    history.session(17, 18, e1, hwm=10).phase("checkpoint_restore", 18, 19, e1)
    resumed = {"checkpoint": "file:///c/6", "cursor": 6, "hwm": 10}
    history.add("resumed", 19, resumed, attempt=e1, rank=0)
    history.steps(19, 23, (6, 10), e1, steps=4).train(23, 33, (10, 20), e1)
    history.session_ended(33, attempt=e1).state(36, state="SUCCEEDED", allocated=2, ended=35)
    metric = history.ended(36, None, e1).job_ended(36).measure()
    assert told(metric) == {
        "attempts": [
            {
                "queue": 2,
                "hardware_setup": 1,
                "launcher_init": 1,
                "trainer_init": 1,
                "train": 10,
                "unattributed": 1,
                "failure_detection": 1,
            },
            {
                "launcher_init": 1,
                "checkpoint_restore": 1,
                "replay": 4,
                "train": 10,
                "shutdown": 2,
            },
        ],
        "components": {
            "scheduling": 3,
            "trainer_init": 4,
            "effective": 20,
            "wasted": 5,
            "shutdown": 2,
            "unattributed": 1,
        },
        "levels": {"start": 5, "recovery": 7, "steady": 1, "shutdown": 2, "effective": 20},
        "layers": {"elastic": 1},
        "causes": {"unknown": 1},
        "tts": 5,
        "ttr": [(7, True)],
        "utt": 4,
        "held": 33,
        "wall": 35,
        "quality": [
            "partial",
            "an attempt went on from within an interval of many steps: UTT split pro rata",
        ],
    }


def test_a_requeue_without_a_new_submission(history, told) -> None:
    """The scheduler takes the machine away at 15, tells of the requeue at 20, starts it at 30.

    Nobody judged the first attempt: it was over, unheard, until the second one began. Between the
    two allocations nothing is held.
    """
    r1 = (1, 1, 0)
    history.open().submit(0).state(3, allocated=2).session(3, 4).train(5, 15, (0, 10))
    history.add("signal", 15, {"signal": "SIGTERM"}, attempt=(1, 0, 0), rank=0)
    history.phase("checkpoint_save", 15, 16).session_ended(16, "preempted")
    history.add("process_ended", 17, {"exit_code": 143}, attempt=(1, 0, 0), rank=0)
    history.state(20, restart=1, state="PENDING").state(31, restart=1, allocated=30)
    history.session(31, 32, r1, hwm=10).train(33, 43, (10, 20), r1).session_ended(43, attempt=r1)
    history.state(46, restart=1, state="SUCCEEDED", allocated=30, ended=45).ended(46, None, r1)
    metric = history.job_ended(46).measure()
    assert told(metric) == {
        "attempts": [
            {
                "queue": 2,
                "hardware_setup": 1,
                "launcher_init": 1,
                "trainer_init": 1,
                "train": 10,
                "checkpoint_save": 1,
                "failure_detection": 4,
            },
            {
                "queue": 10,
                "hardware_setup": 1,
                "launcher_init": 1,
                "trainer_init": 1,
                "train": 10,
                "shutdown": 2,
            },
        ],
        "components": {
            "scheduling": 14,
            "trainer_init": 4,
            "effective": 20,
            "wasted": 5,
            "shutdown": 2,
        },
        "levels": {"start": 5, "recovery": 18, "shutdown": 2, "effective": 20},
        "layers": {"scheduler": 1},
        "causes": {"unknown": 1},
        "tts": 5,
        "ttr": [(18, True)],
        "utt": 0,
        "held": 30,
        "wall": 45,
        "quality": ["complete"],
    }


def test_a_later_try_adopts(history, told) -> None:
    """The worker died, the training did not notice: no attempt begins, and nothing failed."""
    history.open().submit(0).state(2, allocated=1).session(2, 3).train(4, 14, (0, 10))
    history.add("adopted", 8, {"submission": 1, "handle": "slurm://s/1", "try": 2})
    history.steps(14, 24, (10, 20), steps=10).session_ended(24)
    history.state(27, state="SUCCEEDED", allocated=1, ended=26).ended(27, None)
    metric = history.job_ended(27).measure()
    assert told(metric) == {
        "attempts": [
            {
                "queue": 1,
                "hardware_setup": 1,
                "launcher_init": 1,
                "trainer_init": 1,
                "train": 20,
                "shutdown": 2,
            }
        ],
        "components": {"scheduling": 2, "trainer_init": 2, "effective": 20, "shutdown": 2},
        "levels": {"start": 4, "shutdown": 2, "effective": 20},
        "layers": {},
        "causes": {},
        "tts": 4,
        "ttr": [],
        "utt": 0,
        "held": 25,
        "wall": 26,
        "quality": ["complete"],
    }
    assert metric.attempts[0].try_number == 1


def test_crash_loop_that_never_recovers(history, told) -> None:
    """Every interruption counts, the last one too, after which no time is left to recover in."""
    history.open("local_detached")
    for number in range(1, 4):
        at, name = 10 * number, (number, 0, 0)
        history.submit(at, number, "first" if number == 1 else "relaunch")
        history.session(at + 1, at + 2, name)
        history.add("failure", at + 5, {"exit_code": 1}, attempt=name, rank=0)
        history.ended(at + 6, "infrastructure", name)
    metric = history.job_ended(40, "failed", "infrastructure").measure()
    last = {"hardware_setup": 1, "launcher_init": 1, "trainer_init": 3}
    assert told(metric) == {
        "attempts": [
            {**last, "failure_detection": 1, "retry_wait": 4},
            {**last, "failure_detection": 1, "retry_wait": 4},
            last,
        ],
        "components": {"scheduling": 11, "trainer_init": 12, "wasted": 2},
        "levels": {"start": 5, "recovery": 20},
        "layers": {"relaunch": 2, "none": 1},
        "causes": {"infrastructure": 3},
        "tts": 5,
        "ttr": [(10, False), (10, False), (0, False)],
        "utt": 0,
        "held": 12,
        "wall": 25,
        "quality": ["complete"],
    }
    assert metric.ett_pct == 0
    assert metric.end_ns == 35 * 10**9
