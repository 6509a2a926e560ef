"""Real workers that hang: found by their agent, told where they stand, ended where wanted."""

from __future__ import annotations

import json
import re
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_ett.events import AttemptId, Kind
from airflow_ett.launch.verdict import Sighting, judge
from airflow_ett.metric import measure
from airflow_ett.trainer.hangs import Hangs
from airflow_ett.trainer.place import Place
from airflow_ett.trainer.report import NodeReport
from airflow_ett.trainer.watchdog import Stall, Watchdog

A1 = AttemptId(1)

HANGING = """
import ctypes, os, time
from airflow_ett.trainer import Session

def stuck_in_a_collective():
    {hang}

with Session() as ett:
    for number, _ in enumerate(ett.track(range(100)), start=1):
        if os.environ["RANK"] != "0" and number > 10:
            time.sleep(60)  # waits for the first rank
        if number == 60:
            stuck_in_a_collective()
        time.sleep(0.02)
        ett.step(number)
"""
HOLDING_THE_INTERPRETER = """libc, mutex = ctypes.PyDLL(None), ctypes.create_string_buffer(64)
    libc.pthread_mutex_lock(mutex)
    libc.pthread_mutex_lock(mutex)"""


def reply(job: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(job.run_dir.reply(A1, 0).read_text())
    return found


@pytest.mark.parametrize("hang", ["time.sleep(60)", HOLDING_THE_INTERPRETER], ids=["py", "c"])
def test_a_hang_is_told_written_down_and_ended(job: Any, hang: str) -> None:
    begun = time.time_ns()
    agent = job.agent(
        HANGING.format(hang=hang), *["--nproc", "2", "--hang-after", "1.5", "--on-hang", "end"]
    )
    _, err = agent.communicate(timeout=60)
    assert agent.returncode == 137, err
    assert re.search(r"agent: no step for [2-9] s, where one takes 0\.0\d+ s: see /", err)

    (told,) = job.events(Kind.STALLED)
    assert (told.rank, told.attempt) == (0, A1)
    assert begun < told.data["begin"] < told.time_ns - 1_500_000_000
    assert "end" not in told.data
    stacks = job.run_dir.stacks(A1, 0).read_text()
    first, second = stacks.split(" rank 1, process ")
    assert "in stuck_in_a_collective" in first
    assert "Session" not in second.partition("File")[0]
    assert "script0.py" in second

    answer = reply(job)
    assert answer["hung_since_ns"] == told.data["begin"]
    assert [rank["signal"] for rank in answer["ranks"]] == [9, 9]
    verdict = judge(Sighting("FAILED", None, replies=[answer], events=job.events()))
    assert verdict.cause == "infrastructure"  # so it is relaunched
    metric = measure(job.events())
    stalled = metric.phases_ns["stalled"]
    assert abs(stalled - (answer["ranks"][0]["end_ns"] - told.data["begin"])) < 500_000_000


def test_hung_first_steps_are_told_and_not_ended(job: Any) -> None:
    code = HANGING.format(hang="time.sleep(4)").replace("== 60", "== 1").replace("(100)", "(2)")
    agent = job.agent(code, *["--hang-after", "0.2", "--on-hang", "end"])
    _, err = agent.communicate(timeout=60)
    assert agent.returncode == 0, err
    begun, over = job.events(Kind.STALLED)
    assert over.data["begin"] == begun.data["begin"] < over.data["end"]
    assert "stuck_in_a_collective" in job.run_dir.stacks(A1, 0).read_text()


@pytest.mark.torch
def test_what_hung_goes_on_from_its_last_checkpoint(job: Any) -> None:
    pytest.importorskip("torch")
    code = """
    import time
    import torch
    from airflow_ett.trainer import Session
    model = torch.nn.Linear(2, 1)
    with Session() as ett:
        start = (saver := ett.checkpointer(model=model, every_s=0.1)).restore()
        print("start", start, flush=True)
        for number, _ in enumerate(ett.track(range(start, 100), cursor=start), start=1):
            if start == 0 and number == 70:
                time.sleep(60)
            time.sleep(0.02)
            ett.step(number)
    """
    agent = job.agent(code, *["--hang-after", "1.5", "--on-hang", "end"])
    _, err = agent.communicate(timeout=60)
    assert agent.returncode == 137, err
    job.next_submission()
    agent = job.agent(code)
    out, err = agent.communicate(timeout=60)
    assert agent.returncode == 0, err
    (resumed,) = job.events(Kind.RESUMED)
    assert 0 < resumed.data["cursor"] <= 69
    assert out == f"start {resumed.data['cursor']}\n"
    metric = measure(job.events())
    assert [ttr.recovered for ttr in metric.ttr] == [True]


def test_a_hang_that_passes_is_recorded_with_its_end_and_ends_nothing(job: Any) -> None:
    code = HANGING.format(hang="time.sleep(3)").replace("range(100)", "range(75)")
    agent = job.agent(code, "--hang-after", "1.5")
    _, err = agent.communicate(timeout=60)
    assert agent.returncode == 0, err
    begun, over = job.events(Kind.STALLED)
    assert begun.data == {"begin": over.data["begin"]}
    assert over.data["end"] - over.data["begin"] == pytest.approx(3.02e9, abs=0.5e9)
    assert "steps go on after a stall of 3 s" in err
    assert job.run_dir.stacks(A1, 0).read_text().count("stuck_in_a_collective") == 1
    assert measure(job.events()).phases_ns["stalled"] == over.data["end"] - over.data["begin"]


def test_a_long_evaluation_and_what_comes_after_the_loop_are_no_hang(job: Any) -> None:
    agent = job.agent(
        """
        import time
        from airflow_ett.trainer import Session
        with Session() as ett:
            for number in ett.track(range(1, 80)):
                time.sleep(0.02)
                ett.step(number)
                if number == 60:
                    with ett.phase("evaluation"):
                        time.sleep(2.5)
            time.sleep(2.5)  # exports the model, in no phase
        """,
        *["--hang-after", "1.2", "--on-hang", "end"],
    )
    _, err = agent.communicate(timeout=60)
    assert agent.returncode == 0, err
    assert job.events(Kind.STALLED) == []
    assert not job.run_dir.stacks(A1, 0).exists()


def test_a_worker_without_a_session_is_not_sent_the_signal(job: Any) -> None:
    """Its default is to kill; the first rank has a Session and hangs, the second has none."""
    code = HANGING.format(hang="time.sleep(3)").replace(
        "with Session()",
        'if os.environ["RANK"] == "1":\n    time.sleep(6); os._exit(0)\nwith Session()',
    )
    agent = job.agent(code, *["--nproc", "2", "--hang-after", "1.5"])
    _, err = agent.communicate(timeout=60)
    assert agent.returncode == 0, err
    assert "told nothing" in job.run_dir.stacks(A1, 0).read_text()


def test_the_other_nodes_write_their_stacks_when_the_first_one_does(
    job: Any, tmp_path: Path
) -> None:
    report = NodeReport(Place(job.context, A1, 8, 0, 16, 1), 16)
    report.begin()
    process = job.start(
        str(
            job.script("""
            from pathlib import Path
            from airflow_ett.trainer import stacks
            import os, time
            stacks.offer()
            print("offered", flush=True)
            time.sleep(60)
            """)
        ),
        ETT_STACKS=str(tmp_path / "8.stacks"),
    )
    process.stdout.readline()
    worker: Any = type("W", (), {"pid": process.pid, "rank": 8, "running": True})()
    hangs = Hangs([worker], report, tmp_path, Watchdog(), ends=True, one_node=False)
    assert not hangs.look(5.0)
    assert report.stacks is not None
    assert not report.stacks.exists()
    job.run_dir.stacks(A1, 0).write_text("the first node's")
    assert not hangs.look(10.0)
    until = time.monotonic() + 10
    while not (tmp_path / "8.stacks").stat().st_size and time.monotonic() < until:
        time.sleep(0.01)
    assert not hangs.look(15.0)
    assert "rank 8" in report.stacks.read_text()
    assert ".py" in report.stacks.read_text()
    assert not hangs.look(20.0)
    assert report.stacks.read_text().count("rank 8") == 1
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)


def test_an_attempt_that_stalls_all_the_time_does_not_fill_the_disk(
    job: Any, tmp_path: Path
) -> None:
    report = NodeReport(Place(job.context, A1, 0, 0, 1, 0), 1)
    report.begin()
    watchdog = Watchdog()
    watchdog.look = lambda record, now_s: Stall(int(now_s))  # type: ignore[method-assign]
    worker: Any = type("W", (), {"pid": 0, "rank": 0, "running": False})()
    hangs = Hangs([worker], report, tmp_path, watchdog, ends=False, one_node=True)
    for look in range(40):
        hangs.look(float(look))
    assert len(job.events(Kind.STALLED)) == 40
    assert job.run_dir.stacks(A1, 0).read_text().count(" rank 0, ") == 10


def test_a_former_attempts_cursor_is_none_of_this_one(job: Any) -> None:
    agent = job.agent(HANGING.format(hang="pass").replace("range(100)", "range(5)"))
    agent.communicate(timeout=60)
    pid = reply(job)["ranks"][0]["pid"]
    worker: Any = type("W", (), {"pid": pid})()
    mine = Place(job.context, A1, 0, 0, 1, 0)
    assert NodeReport(mine, 1).cursor([worker]) is not None
    assert NodeReport(mine, 1).cursor([]) is None
    assert NodeReport(replace_attempt(mine), 1).cursor([worker]) is None


def replace_attempt(place: Place) -> Place:
    return place._replace(context=replace(place.context, submission=2), attempt=AttemptId(2))
