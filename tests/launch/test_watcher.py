"""The watcher against a scripted scheduler: nothing runs twice, nothing is orphaned."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import Any

import pytest

from airflow_ett.errors import Fenced, JobLogError, LaunchError
from airflow_ett.events import AttemptId, Cause, CursorFile, JobState, Layer, slug
from airflow_ett.launch.storagelog import StorageLog
from airflow_ett.launch.watcher import Watcher

KILLED = {"signal": 9}
RAISED = {"exit_code": 1, "error": {"type": "ValueError", "message": "bad batch"}}


def test_a_training_that_succeeds(bench: Any) -> None:
    watcher = bench.watch()
    assert watcher.poll() is None
    bench.ends("SUCCEEDED")
    outcome = watcher.poll()
    assert outcome is not None
    assert outcome.cause is None
    assert outcome.handle == f"fake://{bench.app()}"
    assert bench.job_state() is JobState.SUCCEEDED
    assert [e.data["layer"] for e in bench.events("submitted")] == [Layer.FIRST]


def test_r01_a_later_try_adopts_the_live_submission(bench: Any) -> None:
    bench.watch()
    later = bench.watch(try_number=2)
    bench.ends("SUCCEEDED")
    assert later.poll().cause is None
    assert len(bench.gateway.submitted) == 1
    assert len(bench.events("adopted")) == 1


def test_r02_a_crash_between_submit_and_handle_never_gives_two_jobs(bench: Any) -> None:
    bench.gateway.lose_answer = True
    with pytest.raises(KeyboardInterrupt):
        bench.watch()
    bench.gateway.lose_answer = False
    later = bench.watch(try_number=2)
    assert bench.gateway.submitted == [bench.app()]
    bench.ends("SUCCEEDED")
    assert later.poll().cause is None
    (submitted,) = bench.events("submitted")
    (intended,) = bench.events("submit_intended")
    assert submitted.time_ns == intended.time_ns


def test_r02_a_crash_before_submit_submits_under_the_same_name(bench: Any) -> None:
    bench.gateway.lose_answer = True
    with pytest.raises(KeyboardInterrupt):
        bench.watch()
    name = bench.app()
    bench.gateway.lose_answer = False
    bench.gateway.states.clear()
    bench.gateway.submitted.clear()
    bench.watch(try_number=2)
    assert bench.gateway.submitted == [name]


def test_a_crash_between_intent_and_its_log_line_is_found(bench: Any, monkeypatch: Any) -> None:
    real = StorageLog.append

    def die(log: StorageLog, kind: str, *args: Any, **kwargs: Any) -> Any:
        if kind == "submit_intended":
            raise KeyboardInterrupt
        return real(log, kind, *args, **kwargs)

    monkeypatch.setattr(StorageLog, "append", die)
    with pytest.raises(KeyboardInterrupt):
        bench.watch()
    monkeypatch.undo()
    later = bench.watch(try_number=2)
    assert len(bench.gateway.submitted) == 1
    bench.ends("SUCCEEDED")
    assert later.poll().cause is None


def test_a_success_noted_but_not_closed_is_reported_by_the_next_try(
    bench: Any, monkeypatch: Any
) -> None:
    watcher = bench.watch()
    bench.ends("SUCCEEDED")
    monkeypatch.setattr(Watcher, "close_job", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        watcher.poll()
    monkeypatch.undo()
    assert bench.watch(try_number=2).poll().cause is None
    assert bench.job_state() is JobState.SUCCEEDED
    assert len(bench.gateway.submitted) == 1


def test_a_job_whose_log_was_removed_does_not_take_its_former_apps_for_its_own(bench: Any) -> None:
    bench.watch()
    bench.ends("SUCCEEDED")
    shutil.rmtree(bench.root.address)
    bench.watch()
    assert bench.app(0) != bench.app(1)


def test_a_superseded_watcher_touches_nothing(bench: Any) -> None:
    old = bench.watch()
    bench.watch(try_number=2)
    for act in (old.poll, lambda: old.cancel(Cause.USER_CANCELLED), old.user_restart):
        with pytest.raises(Fenced):
            act()
    assert bench.gateway.cancelled == []


def test_a_clear_of_an_intent_that_never_reached_the_scheduler_submits_it(bench: Any) -> None:
    bench.gateway.lose_answer = True
    with pytest.raises(KeyboardInterrupt):
        bench.watch()
    bench.gateway.lose_answer = False
    bench.gateway.states.clear()
    later = bench.watch(try_number=2, max_tries=4)
    assert bench.gateway.submitted == [bench.app()] * 2
    bench.reply(AttemptId(1), **RAISED)
    bench.ends("FAILED")
    assert later.poll().cause is Cause.APPLICATION


def test_an_emptied_log_mark_is_read_as_the_beginning(bench: Any) -> None:
    watcher = bench.watch()
    (bench.run_dir().launcher / "stream-0001").touch()
    assert watcher.read_log() == "step 1\nstep 2\n"


def test_r05_a_users_cancel_reaches_the_scheduler_once_and_closes_the_job(bench: Any) -> None:
    watcher = bench.watch()
    watcher.user_cancel(wait_s=1, sleep=lambda s: bench.ends("CANCELLED"))
    assert bench.gateway.cancelled == [bench.app()]
    assert bench.job_state() is JobState.CANCELLED


def test_a_clear_restarts_and_resumes_in_the_same_generation(bench: Any) -> None:
    bench.watch().user_restart()
    bench.ends("CANCELLED")
    later = bench.watch(try_number=2)
    assert later.poll() is None
    assert len(bench.gateway.submitted) == 2
    ends = [e.data["cause"] for e in bench.events("attempt_ended")]
    assert ends == [Cause.USER_RESTART]
    assert bench.events("submitted")[-1].data["layer"] == Layer.AIRFLOW


def test_a_clear_whose_kill_came_late_is_seen_by_max_tries(bench: Any) -> None:
    old = bench.watch(max_tries=2)
    later = bench.watch(try_number=2, max_tries=4)
    assert bench.gateway.cancelled == [bench.app()]
    with pytest.raises(Fenced):
        old.user_restart()
    assert later.poll() is None
    assert len(bench.gateway.submitted) == 1
    bench.ends("CANCELLED")
    later.poll()
    assert len(bench.gateway.submitted) == 2
    assert len(bench.gateway.cancelled) == 1


def test_a_clear_of_a_training_that_had_ended_well_submits_nothing_more(bench: Any) -> None:
    bench.watch()
    bench.ends("SUCCEEDED")
    later = bench.watch(try_number=2, max_tries=4)
    outcome = later.poll()
    assert outcome is not None
    assert outcome.cause is None
    assert bench.job_state() is JobState.SUCCEEDED
    assert len(bench.gateway.submitted) == 1
    assert bench.run_dir().path.name == "g2"


def test_a_clear_after_the_end_begins_the_next_generation(bench: Any) -> None:
    watcher = bench.watch()
    bench.reply(AttemptId(1), **RAISED)
    bench.ends("FAILED")
    watcher.poll()
    watcher.close_job(JobState.FAILED, Cause.APPLICATION)
    run_dir = bench.run_dir().path
    assert run_dir.name == "g2"
    CursorFile(run_dir.parent / "g1" / "cursor").write(1, 0, 0, 0, 9, 0, 40, 77, *[0] * 7, 1)
    bench.watch(try_number=2)
    assert bench.gateway.contexts[-1].key.generation == 2
    assert bench.gateway.contexts[-1].hwm == 77
    assert bench.app(0) != bench.app(1)


def test_success_leaves_nothing_to_inherit(bench: Any) -> None:
    watcher = bench.watch()
    bench.ends("SUCCEEDED")
    watcher.poll()
    assert bench.open().inherit is None


def test_the_interval_that_a_killed_trainer_left_open_is_written(bench: Any) -> None:
    watcher = bench.watch()
    run_dir = bench.run_dir()
    CursorFile(run_dir.cursor).write(1, 0, 0, 0, 9, 4, 64, 64, 10, 20, 0, 2, 6, 3, 1, 0)
    bench.reply(AttemptId(1), **RAISED)
    bench.ends("FAILED")
    watcher.poll()
    (interval,) = bench.events("interval")
    assert (interval.writer, interval.seq) == ("trainer-1.0.0-r0-p9", 4)


def test_a_refused_submission_is_a_launch_failure(bench: Any) -> None:
    bench.gateway.refuse = True
    with pytest.raises(LaunchError, match="queue is closed"):
        bench.watch()
    assert bench.events("attempt_ended")[0].data["cause"] == Cause.LAUNCH
    bench.gateway.refuse = False
    bench.watch(try_number=2)
    assert len(bench.gateway.submitted) == 1


def test_an_unreachable_log_neither_submits_nor_cancels(bench: Any, monkeypatch: Any) -> None:
    watcher = bench.watch()
    monkeypatch.setattr("os.listdir", lambda path: (_ for _ in ()).throw(OSError("stale handle")))
    with pytest.raises(JobLogError, match="stale handle"):
        watcher.poll()
    with pytest.raises(JobLogError):
        watcher.cancel(Cause.USER_CANCELLED)
    monkeypatch.undo()
    assert bench.gateway.cancelled == []
    assert watcher.poll() is None


def test_the_log_is_streamed_once_whoever_reads(bench: Any) -> None:
    assert bench.watch().read_log() == "step 1\nstep 2\n"
    assert bench.watch(try_number=2).read_log() == ""


def test_the_trainer_is_told_how_often_trainings_like_it_fail(bench: Any) -> None:
    bench.request = replace(bench.request, failures_per_hour=0.25)
    bench.watch()
    assert bench.gateway.contexts[-1].failures_per_hour == 0.25


@pytest.mark.parametrize("root", ["", "/fast/cache", "s3://bucket/cache"])
def test_the_trainer_is_told_where_its_own_dags_trainings_keep_what_later_ones_use(
    bench: Any, root: str
) -> None:
    bench.request = replace(bench.request, cache_root=root)
    bench.watch()
    below = f"{root}/{slug('default')}/{slug('dag')}"
    assert bench.gateway.contexts[-1].cache == (below if root else "")


def test_the_first_event_names_the_job_and_its_accelerators(bench: Any) -> None:
    bench.watch()
    (opened,) = bench.events("job_opened")
    assert opened.data["accelerators"] == 8
    assert opened.data["key"]["task_id"] == "train"
