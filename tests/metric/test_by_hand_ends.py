"""Lives that hang, are cancelled, or hold their machines after the last step, by hand."""

from __future__ import annotations

A2 = (2, 0, 0)
BEGUN = {"queue": 1, "hardware_setup": 1, "launcher_init": 1, "trainer_init": 1, "train": 10}
AGAIN = {"hardware_setup": 1, "launcher_init": 1, "trainer_init": 1, "train": 10}


def test_a_hung_job_with_a_watchdog(history, told) -> None:
    """It is cut short where the stall began, at 14; training advances again at 57, 1 s of it new.

    Only a watchdog books ``stalled``: from 14 until its signal ended the process at 50.
    """
    history.open().submit(0).state(2, allocated=1).session(2, 3).train(4, 14, (0, 10))
    history.add("stalled", 44, {"begin": 14 * 10**9}, attempt=(1, 0, 0), rank=0)
    history.add("signal", 50, {"signal": 6}, attempt=(1, 0, 0), rank=0)
    history.ended(52, "infrastructure").submit(53, 2, "relaunch").state(54, 2, allocated=53)
    history.session(54, 55, A2, hwm=10).train(56, 66, (10, 20), A2)
    history.session_ended(66, attempt=A2).ended(66, None, A2)
    assert told(history.job_ended(66).measure()) == {
        "attempts": [{**BEGUN, "stalled": 36, "failure_detection": 2, "retry_wait": 1}, AGAIN],
        "components": {"scheduling": 4, "trainer_init": 4, "effective": 20, "wasted": 38},
        "levels": {"start": 4, "recovery": 42, "effective": 20},
        "layers": {"relaunch": 1},
        "causes": {"infrastructure": 1},
        "tts": 4,
        "ttr": [(42, True)],
        "utt": 0,
        "held": 62,
        "wall": 66,
        "quality": ["complete"],
    }


def test_a_hung_job_without_a_watchdog(history, told) -> None:
    """The deadline cancels it: its silence is nobody's, and it is cut short only by the signal."""
    history.open().submit(0).state(2, allocated=1).session(2, 3).train(4, 14, (0, 10))
    history.add("cancel_requested", 99, {"submission": 1, "reason": "timeout"})
    history.add("signal", 100, {"signal": "SIGTERM"}, attempt=(1, 0, 0), rank=0)
    history.add("process_ended", 105, {"signal": 9}, attempt=(1, 0, 0), rank=0)
    history.state(107, state="CANCELLED", allocated=1, ended=106).ended(107, "timeout")
    metric = history.job_ended(107, "failed", "timeout").measure()
    assert told(metric) == {
        "attempts": [{**BEGUN, "unattributed": 86, "failure_detection": 6}],
        "components": {
            "scheduling": 2,
            "trainer_init": 2,
            "effective": 10,
            "wasted": 6,
            "unattributed": 86,
        },
        "levels": {"start": 4, "recovery": 6, "steady": 86, "effective": 10},
        "layers": {"none": 1},
        "causes": {"timeout": 1},
        "tts": 4,
        "ttr": [(6, False)],
        "utt": 0,
        "held": 105,
        "wall": 106,
        "quality": ["complete"],
    }
    assert metric.at_risk_ns == 10 * 10**9


def test_cancelled_for_good(history, told) -> None:
    """S lies at the end of the last step; what follows is shutdown and no recovery."""
    history.open().submit(0).state(2, allocated=1).session(2, 3).train(4, 14, (0, 10))
    history.add("cancel_requested", 15, {"submission": 1, "reason": "user_cancelled"})
    history.add("signal", 16, {"signal": 15}, attempt=(1, 0, 0), rank=0)
    history.state(20, state="CANCELLED", ended=19).ended(20, "user_cancelled")
    metric = history.job_ended(20, "cancelled", "user_cancelled").measure()
    assert told(metric) == {
        "attempts": [{**BEGUN, "unattributed": 2, "shutdown": 3}],
        "components": {
            "scheduling": 2,
            "trainer_init": 2,
            "effective": 10,
            "shutdown": 3,
            "unattributed": 2,
        },
        "levels": {"start": 4, "shutdown": 5, "effective": 10},
        "layers": {},
        "causes": {},
        "tts": 4,
        "ttr": [],
        "utt": 0,
        "held": 18,
        "wall": 19,
        "quality": ["complete"],
    }
    assert (metric.state, metric.cause) == ("cancelled", "user_cancelled")
    assert metric.at_risk_ns == 10 * 10**9


def test_an_upload_at_the_end(history, told) -> None:
    """One beside the training costs nothing; the last one is waited for, and holds the machines."""
    history.open("local_detached").submit(0).session(0, 0).train(0, 20, (0, 10))
    history.phase("checkpoint_save", 20, 21).steps(21, 41, (10, 20), steps=10)
    history.phase("checkpoint_upload", 21, 39, lane="checkpoint_upload")
    saved = {"checkpoint": "file:///c/10", "cursor": 10}
    history.add(
        "checkpoint_saved", 21, {**saved, "blocking_ns": 10**9}, attempt=(1, 0, 0), rank=0
    ).add("checkpoint_committed", 39, {**saved, "upload_ns": 1}, attempt=(1, 0, 0), rank=0)
    history.phase("shutdown", 41, None).phase("checkpoint_save", 42, 44)
    last = {"checkpoint": "file:///c/20", "cursor": 20}
    history.add(
        "checkpoint_saved", 44, {**last, "blocking_ns": 2 * 10**9}, attempt=(1, 0, 0), rank=0
    ).phase("checkpoint_upload", 44, 60, lane="checkpoint_upload")
    history.add("checkpoint_committed", 60, {**last, "anchor": True}, attempt=(1, 0, 0), rank=0)
    history.session_ended(60).state(63, state="SUCCEEDED", ended=62).ended(63, None)
    metric = history.job_ended(63).measure()
    assert told(metric) == {
        "attempts": [{"train": 40, "checkpoint_save": 3, "shutdown": 19}],
        "components": {"effective": 40, "wasted": 3, "shutdown": 19},
        "levels": {"steady": 1, "shutdown": 21, "effective": 40},
        "layers": {},
        "causes": {},
        "tts": 0,
        "ttr": [],
        "utt": 0,
        "held": 62,
        "wall": 62,
        "quality": ["complete"],
    }
    beside = [
        (s.lane, s.begin_ns // 10**9, s.end_ns // 10**9) for s in metric.spans if s.lane != "main"
    ]
    assert beside == [("checkpoint_upload", 21, 39), ("checkpoint_upload", 44, 60)]
    assert (metric.nos, metric.csbt_ns, metric.wtt_ns) == (2, 1_500_000_000, 3 * 10**9)
    assert [c.anchor for c in metric.checkpoints] == [False, True]


def test_publish_in_the_trainer(history, told) -> None:
    """Publishing there holds the accelerators; a last open shutdown lasts to the end."""
    history.open("local_detached").submit(0).session(0, 0).train(0, 30, (0, 10))
    history.phase("publish", 30, 50).phase("shutdown", 50, None)
    history.state(62, state="SUCCEEDED", ended=61).ended(62, None)
    assert told(history.job_ended(62).measure()) == {
        "attempts": [{"train": 30, "publish": 20, "shutdown": 11}],
        "components": {"effective": 30, "shutdown": 31},
        "levels": {"shutdown": 31, "effective": 30},
        "layers": {},
        "causes": {},
        "tts": 0,
        "ttr": [],
        "utt": 0,
        "held": 61,
        "wall": 61,
        "quality": ["complete"],
    }
