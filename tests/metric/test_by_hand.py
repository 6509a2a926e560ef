"""Lives from the queue to the first step, and whole ones that nothing cut short, by hand.

``test_by_hand_restarts.py`` has those that were cut short and went on, ``test_by_hand_ends.py``
those that were ended, and the 100 s outage with a clean resume stands beside its peer's number in
``test_peers.py``.
"""

from __future__ import annotations

A2 = (2, 0, 0)


def test_first_example_of_the_definition(history, told) -> None:
    """Init 0-10, step 10-13 with a compile 10-12, step 13-14: TTS 12, effective 2, wall 14."""
    history.open("local_detached").submit(0).session(0, 0)
    history.phase("device_init", 0, 10).phase("compile", 10, 12)
    history.steps(12, 13, (0, 1)).steps(13, 14, (1, 2)).session_ended(14)
    assert told(history.ended(14, None).job_ended(14).measure()) == {
        "attempts": [{"device_init": 10, "compile": 2, "train": 2}],
        "components": {"trainer_init": 10, "pt2_compile": 2, "effective": 2},
        "levels": {"start": 12, "effective": 2},
        "layers": {},
        "causes": {},
        "tts": 12,
        "ttr": [],
        "utt": 0,
        "held": 14,
        "wall": 14,
        "quality": ["complete"],
    }


def test_dies_before_its_first_step(history, told) -> None:
    """An attempt that dies while it builds the model is a failure with a recovery of its own.

    It is cut short at 14 (so TTS is 14), and training advances at 31: 17 s, of which the step's 1 s
    is effective. Held: 5 to 14, and 21 to 40.
    """
    history.open().submit(0).state(6, allocated=5, started=5).session(7, 9)
    history.phase("train_module_creation", 10, None)
    history.add("failure", 14, {"exit_code": 1}, attempt=(1, 0, 0), rank=0)
    history.ended(16, "application").submit(20, 2, "airflow", 2)
    history.state(22, 2, allocated=21).session(24, 25, A2).train(30, 40, (0, 10), A2)
    history.session_ended(40, attempt=A2).ended(41, None, A2)
    metric = history.job_ended(41).measure()
    assert told(metric) == {
        "attempts": [
            {
                "queue": 5,
                "hardware_setup": 2,
                "launcher_init": 2,
                "trainer_init": 1,
                "train_module_creation": 4,
                "failure_detection": 2,
                "retry_wait": 4,
            },
            {
                "queue": 1,
                "hardware_setup": 3,
                "launcher_init": 1,
                "trainer_init": 5,
                "train": 10,
            },
        ],
        "components": {"scheduling": 15, "trainer_init": 13, "effective": 10, "wasted": 2},
        "levels": {"start": 14, "recovery": 16, "effective": 10},
        "layers": {"airflow": 1},
        "causes": {"application": 1},
        "tts": 14,
        "ttr": [(16, True)],
        "utt": 0,
        "held": 28,
        "wall": 40,
        "quality": ["complete"],
    }
    assert [attempt.cursor_to for attempt in metric.attempts] == [None, 10]
    assert [attempt.try_number for attempt in metric.attempts] == [1, 2]


def test_preempted_in_the_queue(history, told) -> None:
    """It never got a machine: all its time is queue until the scheduler ended it at 28."""
    history.open().submit(0).state(30, state="CANCELLED", ended=28).ended(31, "preempted")
    history.submit(33, 2, "relaunch").state(36, 2, allocated=35)
    history.session(36, 37, A2).train(38, 48, (0, 10), A2)
    history.session_ended(48, attempt=A2).ended(48, None, A2)
    assert told(history.job_ended(48).measure()) == {
        "attempts": [
            {"queue": 28, "failure_detection": 3, "retry_wait": 2},
            {
                "queue": 2,
                "hardware_setup": 1,
                "launcher_init": 1,
                "trainer_init": 1,
                "train": 10,
            },
        ],
        "components": {"scheduling": 33, "trainer_init": 2, "effective": 10, "wasted": 3},
        "levels": {"start": 28, "recovery": 10, "effective": 10},
        "layers": {"relaunch": 1},
        "causes": {"preempted": 1},
        "tts": 28,
        "ttr": [(10, True)],
        "utt": 0,
        "held": 13,
        "wall": 48,
        "quality": ["complete"],
    }


def test_two_ranks_with_different_first_steps(history, told) -> None:
    """The last rank leads until its first step begins at 20, then rank 0's lane is followed.

    Of rank 0's first step, which waited for rank 1 from 4 on, the last second is effective.
    """
    history.open("local_detached").submit(0).session(0, 1).session(0, 2, rank=1)
    history.phase("first_batch", 2, 4).steps(4, 21, (0, 1))
    history.phase("train_module_creation", 3, 15, rank=1).phase("first_batch", 15, 20, rank=1)
    history.steps(20, 21, (0, 1), rank=1)
    history.steps(21, 31, (1, 11), steps=10).steps(21, 31, (1, 11), steps=10, rank=1)
    assert told(history.session_ended(31).ended(31, None).job_ended(31).measure()) == {
        "attempts": [
            {
                "launcher_init": 2,
                "trainer_init": 1,
                "train_module_creation": 12,
                "first_batch": 5,
                "train": 11,
            }
        ],
        "components": {"trainer_init": 20, "effective": 11},
        "levels": {"start": 20, "effective": 11},
        "layers": {},
        "causes": {},
        "tts": 20,
        "ttr": [],
        "utt": 0,
        "held": 31,
        "wall": 31,
        "quality": ["complete"],
    }


def test_compilations_and_evaluation_in_the_loop(history, told) -> None:
    """The first step's compilation lies in the start, a recompilation in the third step is steady.

    What a step did before its compilation began is its own: 2-3 and 14-15 are train. Evaluation
    and waiting for data are wasted by component and steady by position.
    """
    history.open("local_detached").submit(0).session(0, 0).phase("first_batch", 0, 2)
    history.steps(2, 3, (0, 0), fragment=True).phase("compile", 3, 9).steps(9, 10, (0, 1))
    history.steps(10, 14, (1, 3), steps=2)
    history.steps(14, 15, (3, 3), fragment=True).phase("compile", 15, 18).steps(18, 20, (3, 4))
    history.phase("evaluation", 20, 25).steps(25, 28, (4, 6), steps=2, wait=1)
    assert told(history.session_ended(28).ended(28, None).job_ended(28).measure()) == {
        "attempts": [
            {"first_batch": 2, "compile": 9, "train": 11, "evaluation": 5, "data_wait": 1}
        ],
        "components": {"trainer_init": 2, "pt2_compile": 9, "effective": 11, "wasted": 6},
        "levels": {"start": 8, "steady": 9, "effective": 11},
        "layers": {},
        "causes": {},
        "tts": 8,
        "ttr": [],
        "utt": 0,
        "held": 28,
        "wall": 28,
        "quality": ["complete"],
    }


def test_never_instrumented(history, told) -> None:
    """Scheduling phases and no ETT%; what the process did is nobody's guess."""
    history.open().submit(0).state(10, allocated=4, started=9)
    history.state(60, state="SUCCEEDED", allocated=4, started=9, ended=59).ended(60, None)
    metric = history.job_ended(60).measure()
    assert told(metric) == {
        "attempts": [{"queue": 4, "hardware_setup": 5, "unattributed": 50}],
        "components": {"scheduling": 9, "unattributed": 50},
        "levels": {"start": 59},
        "layers": {},
        "causes": {},
        "tts": 59,
        "ttr": [],
        "utt": 0,
        "held": 55,
        "wall": 59,
        "quality": [
            "launcher_only",
            "no trainer events: no Session ran, or the image lacks airflow_ett",
        ],
    }
    assert (metric.ett_pct, metric.ett_pct_held, metric.ett_pct_paper) == (None, None, None)


def test_never_instrumented_and_relaunched(history, told) -> None:
    """Failures are counted all the same: the scheduler tells of them."""
    history.open().submit(0).state(5, allocated=4, started=5)
    history.state(21, state="FAILED", allocated=4, started=5, ended=20).ended(21, "infrastructure")
    history.submit(23, 2, "relaunch").state(26, 2, allocated=24, started=26)
    history.state(51, 2, state="SUCCEEDED", allocated=24, started=26, ended=50).ended(51, None, A2)
    metric = history.job_ended(51).measure()
    assert told(metric) == {
        "attempts": [
            {
                "queue": 4,
                "hardware_setup": 1,
                "unattributed": 15,
                "failure_detection": 1,
                "retry_wait": 2,
            },
            {"queue": 1, "hardware_setup": 2, "unattributed": 24},
        ],
        "components": {"scheduling": 10, "unattributed": 39, "wasted": 1},
        "levels": {"start": 20, "recovery": 30},
        "layers": {"relaunch": 1},
        "causes": {"infrastructure": 1},
        "tts": 20,
        "ttr": [(30, True)],
        "utt": 0,
        "held": 42,
        "wall": 50,
        "quality": [
            "launcher_only",
            "no trainer events: no Session ran, or the image lacks airflow_ett",
        ],
    }
    assert metric.ett_pct is None
