"""Provisional and frozen results, work at risk, and what the log itself lacks."""

from __future__ import annotations

import json
from dataclasses import replace

from airflow_ett.events import JobKey


def test_waiting_in_the_queue(history, in_seconds) -> None:
    metric = history.open().submit(0).measure(now=50)
    assert in_seconds(metric.phases_ns) == {"queue": 50}
    assert (metric.state, metric.frozen, metric.nof) == ("running", False, 0)
    assert metric.held_ns == 0
    assert metric.ett_pct is None


def test_setting_up(history, in_seconds) -> None:
    metric = history.open().submit(0).state(10, state="PENDING", allocated=8).measure(now=50)
    assert in_seconds(metric.phases_ns) == {"queue": 8, "hardware_setup": 42}


def test_a_fresh_heartbeat_keeps_the_clock_running(history, in_seconds) -> None:
    history.open().submit(0).state(2, allocated=1).session(2, 3)
    history.phase("train_module_creation", 4, None)
    metric = history.measure(now=600, sign=595)
    assert in_seconds(metric.phases_ns)["train_module_creation"] == 596
    assert metric.quality == "complete", metric.quality_reasons


def test_old_signs_stop_the_clock(history) -> None:
    history.open().submit(0).state(2, allocated=1).session(2, 3).train(4, 14, (0, 10))
    assert history.measure(now=600, sign=40).end_ns == 40 * 10**9
    assert history.measure(now=600).end_ns == 14 * 10**9
    assert history.measure(now=20).end_ns == 20 * 10**9


def test_waiting_for_the_retry(history, in_seconds) -> None:
    """An open recovery is not recovered, and the wait goes on although nothing lives."""
    history.open().submit(0).state(2, allocated=1).session(2, 3).train(4, 14, (0, 10))
    metric = history.ended(15, "application").measure(now=300)
    assert in_seconds(metric.phases_ns)["retry_wait"] == 285
    assert [(r.ns // 10**9, r.recovered) for r in metric.ttr] == [(286, False)]
    assert metric.nof == 1
    assert metric.held_ns == 13 * 10**9


def test_work_at_risk(history) -> None:
    """First-time training beyond the newest committed checkpoint; nothing once all is saved."""
    a1 = (1, 0, 0)
    history.open().submit(0).state(2, allocated=1).session(2, 3).train(4, 14, (0, 10))
    saved = {"checkpoint": "file:///c/10", "cursor": 10, "blocking_ns": 2 * 10**9}
    history.add("checkpoint_saved", 14, saved, attempt=a1, rank=0)
    assert history.measure(now=15).at_risk_ns == 10 * 10**9
    done = {"checkpoint": "file:///c/10", "cursor": 10, "bytes": 7, "upload_ns": 5}
    history.add("checkpoint_committed", 15, done, attempt=a1, rank=0)
    assert history.measure(now=15).at_risk_ns == 0
    history.steps(15, 19, (10, 14), steps=4)
    metric = history.measure(now=20)
    assert metric.at_risk_ns == 4 * 10**9
    assert (metric.nos, metric.csbt_ns, metric.wtt_ns) == (1, 2 * 10**9, 2 * 10**9)


def test_save_blocking_is_the_maximum_over_ranks(history) -> None:
    history.open("local").submit(0).session(0, 0).session(0, 0, rank=1).train(0, 10, (0, 10))
    for rank, blocking in ((0, 1), (1, 3)):
        saved = {"checkpoint": "c1", "cursor": 10, "blocking_ns": blocking}
        history.add("checkpoint_saved", 10, saved, attempt=(1, 0, 0), rank=rank)
    saved = {"checkpoint": "c2", "cursor": 10, "blocking_ns": 6}
    history.add("checkpoint_saved", 11, saved, attempt=(1, 0, 0), rank=0)
    metric = history.measure()
    assert [c.blocking_ns for c in metric.checkpoints] == [3, 6]
    assert (metric.nos, metric.csbt_ns, metric.wtt_ns) == (2, 4, 9)


def test_lost_twice_counts_once(history) -> None:
    """Three attempts fall back to 4: the first-time work beyond it is lost with the first one."""
    history.open("local").submit(0).session(0, 0).train(0, 10, (0, 10)).ended(10, "preempted")
    for number in (2, 3):
        begin, name = 20 * number, (number, 0, 0)
        history.submit(begin, number, "relaunch").session(begin, begin, name, hwm=10)
        resumed = {"checkpoint": "c4", "cursor": 4, "hwm": 10}
        history.add("resumed", begin, resumed, attempt=name, rank=0)
        history.steps(begin, begin + 4, (4, 8), name, steps=4).ended(begin + 4, "preempted", name)
    metric = history.measure()
    assert metric.utt_ns == 6 * 10**9
    assert metric.phases_ns["replay"] == 8 * 10**9


def test_a_frozen_result_does_not_depend_on_the_present(history) -> None:
    history.open("local").submit(0).session(0, 0).train(0, 10, (0, 10)).session_ended(10)
    history.ended(10, None).job_ended(10)
    frozen = history.measure()
    assert frozen == history.measure(now=10**6, sign=10**6)
    published = {"version": "3", "uri": "file:///r/3", "begin": 20, "end": 30}
    later = history.add("published", 99, published).measure(now=5)
    assert later.wall_ns == frozen.wall_ns == 10 * 10**9
    (told,) = later.as_dict()["published"]
    assert published.items() <= told.items()


def test_missing_events_are_told(history) -> None:
    history.open("local").submit(0).session(0, 0).train(0, 10, (0, 10)).session_ended(10)
    history.ended(10, None).job_ended(10)
    del history.events[4]
    metric = history.measure()
    assert metric.quality == "partial"
    missing = "events of writer trainer-(1, 0, 0)-r0 are missing: 1"
    assert missing in metric.quality_reasons


def test_processes_that_number_from_their_begin_on_have_lost_nothing(history) -> None:
    """Of one name, in a container that was started again: the job's log lies elsewhere."""
    history.open("local").submit(0).session(0, 0).train(0, 10, (0, 10)).train(10, 20, (10, 20))
    history.session_ended(20).ended(20, None).job_ended(20)
    lines = [n for n, event in enumerate(history.events) if event.writer.startswith("trainer")]
    first = history.events[lines[0]]
    assert (first.kind, first.seq) == ("process_started", 0)
    for n in lines:
        event = history.events[n]
        history.events[n] = replace(event, seq=event.seq + 1_790_000_000_000)
    assert history.measure().quality == "complete"
    del history.events[lines[2]]
    assert history.measure().quality == "partial"


def test_the_number_of_an_open_interval_is_not_missing(history) -> None:
    """A Session reserves it; another thread of the trainer may write in the meantime."""
    history.open("local").submit(0).session(0, 0).train(0, 10, (0, 10)).phase("evaluation", 10, 12)
    assert history.events.pop(-3).kind == "interval"
    assert history.measure(now=12).quality == "complete"
    assert history.session_ended(13).measure(now=13).quality == "partial"


def test_a_killed_session_has_one_number_reserved_beyond_its_last_interval(history) -> None:
    """What is missing before that is lost, whoever closed the open interval."""
    history.open("local").submit(0).session(0, 0).train(0, 10, (0, 10)).train(10, 20, (10, 20))
    history.train(20, 30, (20, 30)).ended(31, "infrastructure").job_ended(31, "failed")
    intervals = [n for n, event in enumerate(history.events) if event.kind == "interval"]
    assert history.measure().quality == "complete"
    del history.events[intervals[1]]
    assert any("missing: 1" in reason for reason in history.measure().quality_reasons)


def test_no_submission_and_skewed_clocks_are_told(history, in_seconds) -> None:
    """A trainer whose clock is 3 s behind its launcher's: told, and never a negative phase."""
    history.open("local").session(2, 3).train(4, 10, (0, 6)).session_ended(10).ended(11, None)
    metric = history.job_ended(11).measure()
    assert any("no submitted event of attempt 1.0.0" in r for r in metric.quality_reasons)
    assert in_seconds(metric.phases_ns) == {"launcher_init": 1, "trainer_init": 1, "train": 6}
    history.submit(7)
    metric = history.measure()
    assert in_seconds(metric.phases_ns) == {"train": 3}
    assert any("clocks disagree" in reason for reason in metric.quality_reasons)


def test_a_cursor_that_goes_back_is_told(history, in_seconds) -> None:
    history.open("local").submit(0).session(0, 0).train(0, 10, (0, 10)).steps(10, 14, (2, 6))
    metric = history.session_ended(14).ended(14, None).job_ended(14).measure()
    assert in_seconds(metric.phases_ns) == {"train": 10, "replay": 4}
    assert any(reason.startswith("cursor_reset") for reason in metric.quality_reasons)


def test_an_unclosed_phase_ends_where_the_next_interval_begins(history, in_seconds) -> None:
    history.open("local").submit(0).session(0, 0).phase("evaluation", 0, None)
    history.train(5, 10, (0, 5)).phase("evaluation", 10, None).session_ended(12)
    history.state(13, state="SUCCEEDED", ended=13).ended(13, None)
    metric = history.job_ended(13).measure()
    assert in_seconds(metric.phases_ns) == {"evaluation": 7, "train": 5, "shutdown": 1}
    assert metric.quality_reasons == ("phase evaluation of attempt 1.0.0 has no end",)


def test_nobody_can_open_train_by_name(history, in_seconds) -> None:
    history.open("local").submit(0).session(0, 0).phase("train", 0, 10).session_ended(10)
    metric = history.ended(10, None).job_ended(10).measure()
    assert in_seconds(metric.phases_ns) == {"loop_other": 10}
    assert metric.ett_pct == 0


def test_a_phase_of_the_trainers_own(history) -> None:
    """Before the loop it counts as trainer_init, in the loop as wasted."""
    history.open("local").submit(0).session(0, 0).phase("warm_up", 0, 4).train(4, 8, (0, 4))
    history.phase("warm_up", 8, 9).session_ended(9).ended(9, None)
    metric = history.job_ended(9).measure()
    assert metric.components_ns["trainer_init"] == 4 * 10**9
    assert metric.components_ns["wasted"] == 10**9


def test_nothing_and_almost_nothing(history) -> None:
    empty = history.measure()
    assert (empty.wall_ns, empty.ett_pct, empty.quality) == (0, None, "launcher_only")
    opened = history.open().measure(now=9)
    assert (opened.wall_ns, opened.dag_id, opened.attempts) == (0, "ranker", ())


def test_the_dictionary_is_plain_json(history) -> None:
    history.open().submit(0).state(2, allocated=1).session(2, 3).train(4, 14, (0, 10))
    compiled = {"id": "0/0", "duration_ns": 3, "hits": 1, "misses": 2, "reason": "shape"}
    history.add("compile", 14, compiled, attempt=(1, 0, 0), rank=0)
    saved = {"checkpoint": "c", "cursor": 10, "blocking_ns": 3}
    history.add("checkpoint_saved", 14, saved, attempt=(1, 0, 0), rank=0)
    history.ended(15, "preempted")
    result = history.measure(now=20).as_dict()
    assert json.loads(json.dumps(result)) == result
    key = {n: result[n] for n in JobKey.__slots__}
    assert JobKey(**key).dag_id == "ranker"
    assert set(result["attempts"][0]) == {
        *("submission", "scheduler_restart", "elastic_restart", "try", "layer", "cause"),
        *("evidence", "begin_ns", "end_ns", "detected_ns", "cursor_from", "cursor_to"),
        *("resumed_from", "phases_ns", "host", "hosts", "log", "clock_skew", "slowest"),
        *("waits", "levers"),
    }
    assert set(result) == {
        *("dag_id", "run_id", "task_id", "map_index", "generation", "deployment", "job", "state"),
        *("quality", "quality_reasons", "frozen", "begin_ns", "end_ns", "wall_ns", "held_ns"),
        *("effective_ns", "ett_pct", "ett_pct_held", "ett_pct_paper", "tts_ns", "ttr", "nof"),
        *("nof_by_cause", "nof_by_layer", "phases_ns", "components_ns", "levels_ns", "attempts"),
        *("checkpoints", "compiles", "accelerators", "scheduler", "utt_ns", "nos", "csbt_ns"),
        *("wtt_ns", "at_risk_ns", "cause", "handle", "published", "excluded_ns", "positions_ns"),
        *("time_to_first_advance_ns", "held_components_ns", "windows", "current_phase"),
        *("progress_ns", "released_ns"),
    }
    assert result["compiles"][0]["begin_ns"] == 14 * 10**9 - 3
    assert result["checkpoints"][0]["attempt"] == [1, 0, 0]
