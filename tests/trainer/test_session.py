"""The Session in real processes: what it writes, what it survives, what it never does."""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from airflow_ett.events import AttemptId, Event, Kind, LogWriter, read_cursor

LOOP = """
import sys, time
from airflow_ett.trainer import Session
with Session() as ett:
    with ett.phase("device_init"):
        time.sleep(0.002)
    for number, batch in enumerate(ett.track(range(10, 110, 10))):
        time.sleep(0.002)
        if number % 4 == 1:
            with ett.phase("evaluation"):
                time.sleep(0.002)
        ett.step(batch - 0)
        if number % 5 == 0:
            with ett.phase("checkpoint_save"):
                time.sleep(0.001)
    time.sleep(0.005)
print("done")
"""

Gaps = Callable[[list[Event]], list[tuple[int, int]]]


def test_every_nanosecond_after_the_first_request_is_covered(job: Any, covered: Gaps) -> None:
    done = job.run(LOOP)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    events = job.events()
    assert covered(events) == []
    intervals = [e.data for e in events if e.kind == Kind.INTERVAL]
    for i in intervals:
        assert i["step_ns"] + i["wait_ns"] + i["other_ns"] == i["to"] - i["from"]
        assert min(i["step_ns"], i["wait_ns"], i["other_ns"]) >= 0
    assert sum(i["steps"] for i in intervals) == 10
    (first,) = [e.data["span"] for e in events if e.data.get("phase") == "first_batch"]
    warm = next(e for e in events if e.kind == Kind.PHASE_END and e.data["span"] == first)
    assert min(i["from"] for i in intervals) == warm.time_ns
    ordered = sorted(intervals, key=lambda i: i["from"])
    assert all(a["to"] <= b["from"] for a, b in itertools.pairwise(ordered))
    assert all(a["cursor_to"] == b["cursor_from"] for a, b in itertools.pairwise(ordered))
    assert sorted(e.seq for e in events) == list(range(len(events)))


def test_the_events_of_a_plain_run(job: Any) -> None:
    before = time.time_ns()
    job.run(LOOP)
    events = job.events()
    kinds = [str(e.kind) for e in events]
    assert kinds[:2] == ["process_started", "session_started"]
    assert kinds[-1] == "session_ended"
    assert abs(events[0].time_ns - before) < 2_000_000_000
    assert events[0].time_ns < events[1].time_ns
    assert all(e.attempt == AttemptId(1) and e.rank == 0 for e in events)
    phases = [e.data["phase"] for e in events if e.kind == Kind.PHASE_BEGIN]
    assert Counter(phases) == {
        "device_init": 1, "first_batch": 1, "evaluation": 3, "checkpoint_save": 2, "shutdown": 1
    }  # fmt: skip
    fragments = [e.data for e in events if e.data.get("fragment")]
    assert [f["steps"] for f in fragments] == [0, 0, 0]
    assert all(f["step_ns"] > 1_500_000 for f in fragments)
    assert events[-1].data == {"outcome": "success", "cursor": 100}


def test_the_step_that_passes_the_high_water_mark_has_an_interval_of_its_own(job: Any) -> None:
    job.context = job.context.__class__(**{**_fields(job.context), "hwm": 45})
    job.run(LOOP.replace("number % 4 == 1", "False").replace("number % 5 == 0", "False"))
    bounds = [
        (e.data["cursor_from"], e.data["cursor_to"], e.data["steps"])
        for e in job.events(Kind.INTERVAL)
        if e.data["steps"]
    ]
    assert bounds == [(0, 40, 4), (40, 50, 1), (50, 100, 5)]
    record = read_cursor(job.run_dir.cursor)
    assert record is not None
    assert (record.cursor, record.hwm, record.closed) == (100, 100, 1)


def test_sigkill_leaves_the_exact_cursor_and_the_open_interval_once(job: Any) -> None:
    process = job.start(
        str(
            job.script("""
        import time
        from airflow_ett.trainer import Session
        with Session() as ett:
            for batch in ett.track(range(1, 1_000_000)):
                time.sleep(0.001)
                ett.step(batch)
                print(batch, flush=True)
    """)
        )
    )
    while process.stdout.readline() != "200\n":
        pass
    process.send_signal(signal.SIGKILL)
    last = [200, *(int(line) for line in process.stdout.read().split())]
    process.wait()
    record = read_cursor(job.run_dir.cursor)
    assert record is not None
    assert record.pid == process.pid
    assert record.cursor - last[-1] in (0, 1)  # the last line may not have been printed
    left = record.open_interval(job.context.key.id)
    assert left is not None
    before = job.events()
    assert left.seq not in {e.seq for e in before}
    for writer in ("agent", "launcher"):
        LogWriter(job.run_dir.nodes / f"{writer}.jsonl", job=left.job, writer=writer).copy(left)
    found = job.events(Kind.INTERVAL)
    unique = {(e.job, e.writer, e.seq): e for e in found}
    assert len(unique) == len(found) - 1
    assert sum(e.data["steps"] for e in unique.values()) == record.cursor
    assert sorted(e.seq for e in {e.seq: e for e in job.events()}.values()) == list(
        range(1 + max(e.seq for e in job.events()))
    )


def test_an_error_is_told_with_type_message_and_traceback(job: Any, tmp_path: Path) -> None:
    told = tmp_path / "error.json"
    done = job.run(
        """
        from airflow_ett.trainer import Session
        with Session() as ett:
            for batch in ett.track(range(3)):
                raise ValueError("boom at 7")
        """,
        TORCHELASTIC_ERROR_FILE=str(told),
    )
    assert done.returncode == 1
    assert "boom at 7" in done.stderr
    (failure,) = job.events(Kind.FAILURE)
    assert (failure.data["type"], failure.data["message"]) == ("ValueError", "boom at 7")
    assert "raise ValueError" in failure.data["traceback"]
    assert job.events(Kind.SESSION_ENDED)[0].data["outcome"] == "error"
    assert json.loads(told.read_text())["message"]["message"] == "ValueError: boom at 7"


def test_an_unfinished_step_is_other_time(job: Any, covered: Gaps) -> None:
    job.run("""
        import time
        from airflow_ett.trainer import Session
        with Session() as ett:
            for batch in ett.track(range(3)):
                if batch == 1:
                    time.sleep(0.02)
                    break
                ett.step(1)
    """)
    intervals = [e.data for e in job.events(Kind.INTERVAL)]
    assert sum(i["other_ns"] for i in intervals) > 15_000_000
    assert sum(i["step_ns"] for i in intervals) < 10_000_000
    assert covered(job.events()) == []


def test_micro_batches_belong_to_the_step_they_end_in(job: Any) -> None:
    job.run("""
        import time
        from airflow_ett.trainer import Session
        with Session() as ett:
            for number, batch in enumerate(ett.track(range(8)), start=1):
                time.sleep(0.005)
                if number % 4 == 0:
                    ett.step(number)
    """)
    first = next(e.data for e in job.events(Kind.INTERVAL) if e.data["steps"])
    assert (first["cursor_from"], first["cursor_to"], first["steps"]) == (0, 4, 1)
    assert first["step_ns"] > 18_000_000


def test_sigterm_ends_the_loop_after_a_step_with_143(job: Any, covered: Gaps) -> None:
    process = job.start(
        str(
            job.script("""
        import signal, time
        from airflow_ett.trainer import Session
        signal.signal(signal.SIGTERM, lambda *_: print("former", flush=True))
        with Session() as ett:
            for batch in ett.track(range(1, 1_000_000)):
                time.sleep(0.01)
                ett.step(batch)
                print("step", flush=True)
            assert ett.preempted
    """)
        )
    )
    process.stdout.readline()
    sent = time.time_ns()
    process.terminate()
    out, err = process.communicate(timeout=30)
    assert process.returncode == 143, err
    assert "former" in out
    (told,) = job.events(Kind.SIGNAL)
    assert 0 <= told.time_ns - sent < 1_000_000_000
    assert job.events(Kind.SESSION_ENDED)[0].data["outcome"] == "preempted"
    assert covered(job.events()) == []


def test_other_threads_are_lanes_of_their_own(job: Any, covered: Gaps) -> None:
    done = job.run("""
        import threading, time
        from airflow_ett.trainer import Session
        def work(ett):
            for _ in range(50):
                with ett.phase("warm_up"):
                    time.sleep(0.0005)
        with Session() as ett:
            threads = [threading.Thread(target=work, args=(ett,), name=f"t{n}") for n in range(3)]
            for thread in threads: thread.start()
            for batch in ett.track(range(1, 100)):
                time.sleep(0.0005)
                ett.step(batch)
            for thread in threads: thread.join()
    """)
    assert done.returncode == 0, done.stderr
    events = job.events()
    lanes = Counter(e.data["lane"] for e in events if e.kind == Kind.PHASE_BEGIN)
    assert lanes == {"main": 2, "t0": 50, "t1": 50, "t2": 50}
    assert covered(events) == []
    assert sum(e.data["steps"] for e in events if e.kind == Kind.INTERVAL) == 99
    assert sorted(e.seq for e in events) == list(range(len(events)))


def test_a_forked_child_writes_nothing_and_dies_of_sigterm(job: Any) -> None:
    done = job.run("""
        import os, signal, time
        from airflow_ett.trainer import Session
        with Session() as ett:
            child = os.fork()
            if child == 0:
                with ett.phase("evaluation"):
                    time.sleep(60)
            time.sleep(0.1)
            os.kill(child, signal.SIGTERM)
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """)
    assert done.stdout == "-15\n", done.stderr
    assert [e.data["phase"] for e in job.events(Kind.PHASE_BEGIN)] == ["shutdown"]


def test_only_the_first_rank_of_a_node_writes_a_log_and_rank_0_the_cursor(job: Any) -> None:
    job.run(LOOP, RANK="5", LOCAL_RANK="1", WORLD_SIZE="8")
    assert list(job.run_dir.logs()) == []
    assert not job.run_dir.cursor.exists()
    job.run(LOOP, RANK="4", LOCAL_RANK="0", WORLD_SIZE="8", ETT_NODE="1")
    assert [e.rank for e in job.events(Kind.SESSION_ENDED)] == [4]
    assert not job.run_dir.cursor.exists()


def test_r39_restarts_of_every_layer_are_attempts_of_their_own(job: Any) -> None:
    job.run(LOOP)
    job.run(LOOP, TORCHELASTIC_RESTART_COUNT="1")
    job.run(LOOP, SLURM_RESTART_COUNT="1")
    job.next_submission()
    job.run(LOOP)
    attempts = {e.attempt for e in job.events(Kind.SESSION_STARTED)}
    assert attempts == {AttemptId(1), AttemptId(1, 0, 1), AttemptId(1, 1, 0), AttemptId(2)}


def test_outside_a_launched_job_nothing_happens(tmp_path: Path, job: Any) -> None:
    code = """
from airflow_ett.trainer import Session
with Session() as ett:
    saver = ett.checkpointer(model=object(), every_s=1)
    with ett.phase("x"):
        total = 0
    for batch in ett.track([1, 2, 3], cursor=saver.restore()):
        total += batch
        ett.step(total)
print(total, ett.attempt, ett.preempted)
"""
    environ = {k: v for k, v in job.environ().items() if k != "ETT_JOB"}
    for broken in ({}, {"ETT_JOB": "@@"}):
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=environ | broken, cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stdout) == (0, "6 None False\n"), done.stderr
        assert ("neither measured" in done.stderr) == bool(broken)
    assert list(job.run_dir.logs()) == []


def test_a_log_that_cannot_be_written_costs_one_warning(job: Any) -> None:
    job.run_dir.nodes.write_text("in the way")
    job.run_dir.cursor.mkdir()
    done = job.run(LOOP)
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert done.stderr.count("cannot be written") == 2  # the log, the cursor


def test_a_disk_that_fills_up_costs_one_warning(job: Any) -> None:
    done = job.run(LOOP.replace(
        "from airflow_ett.trainer import Session",
        "import resource, signal\n"
        "from airflow_ett.trainer import Session\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))",
    ))  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert done.stderr.count("Events are lost") == 1


def test_odd_step_numbers_never_end_a_training(job: Any) -> None:
    done = job.run("""
        from airflow_ett.trainer import Session
        with Session() as ett:
            for odd in ett.track([1.0, 2**63, None, "x", float("nan"), 3.5], cursor=7.0):
                ett.step(odd)
        print("done")
    """)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    assert done.stderr.count("moves nothing") == 1
    assert sum(e.data["steps"] for e in job.events(Kind.INTERVAL)) == 6
    assert job.events(Kind.SESSION_ENDED)[0].data["cursor"] == 8


def _fields(context: Any) -> dict[str, Any]:
    return {name: getattr(context, name) for name in context.__slots__}
