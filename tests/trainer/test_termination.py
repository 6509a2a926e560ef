"""SIGTERM in every stage of a training: what is saved, in which order, and that it ends in time."""

from __future__ import annotations

import importlib.util
import itertools
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_ett import checkpoints
from airflow_ett.events import AttemptId, Kind, read_cursor
from airflow_ett.launch.verdict import Sighting, judge
from airflow_ett.metric import measure
from airflow_ett.trainer.notice import VARIABLE, Notice, read_notice, write_notice

TRAIN = """
import os, time
import torch
from airflow_ett.trainer import Session

def here(word):
    print(word, flush=True)

model = torch.nn.Linear(2, 1)
with Session() as ett:
    saver = ett.checkpointer(model=model, every_s={every})
    {init}
    start = saver.restore()
    for number, _ in enumerate(ett.track(range(start, 100), cursor=start), start=1):
        time.sleep(0.01)
        if number == 20:
            {in_step}
        ett.step(number)
        if number == 20:
            {after_step}
    {after_loop}
"""


def torch_needed(test: Callable[..., None]) -> Callable[..., None]:
    """Mark a test that trains, and skip it where there is nothing to train with."""
    missing = importlib.util.find_spec("torch") is None
    marked: Callable[..., None] = pytest.mark.skipif(missing, reason="needs torch")(test)
    return pytest.mark.torch(marked)


def terminated(job: Any, *, every: float | None = None, **stages: str) -> float:
    """Train, send SIGTERM when the code of a stage says so; return the seconds that it took."""
    code = TRAIN.format(
        every=every,
        **{name: stages.get(name, "pass") for name in ("init", "in_step", "after_step")},
        after_loop=stages.get("after_loop", "pass"),
    )
    process = job.start(str(job.script(code)))
    assert process.stdout.readline() == "now\n", process.communicate()[1]
    sent = time.monotonic()
    process.terminate()
    _, err = process.communicate(timeout=60)
    assert process.returncode == 143, err
    (ended,) = job.events(Kind.SESSION_ENDED)
    assert ended.data["outcome"] == "preempted"
    assert len(job.events(Kind.SIGNAL)) == 1
    return time.monotonic() - sent


def saved(job: Any) -> list[int]:
    """The cursors of the committed checkpoints, which are sound and loaded by the next attempt."""
    found = checkpoints.list_checkpoints(job.context.checkpoints)
    for one in found:
        checkpoints.verify(one)
    return [one.cursor for one in found]


@torch_needed
def test_in_the_init_it_ends_before_the_first_batch(job: Any) -> None:
    terminated(job, init='here("now"); time.sleep(0.5)')
    assert saved(job) == []
    assert job.events(Kind.INTERVAL) == []


@torch_needed
def test_in_the_pipelines_warm_up_the_first_step_is_not_begun(job: Any) -> None:
    slow = """
    def range(*bounds):
        here("now")
        time.sleep(0.5)
        yield 1
        os._exit(1)
    """
    terminated(job, init=slow)
    assert saved(job) == []
    assert sum(event.data["steps"] for event in job.events(Kind.INTERVAL)) == 0


RANKS = """
import os, signal, time
import torch, torch.distributed as dist
from airflow_ett.trainer import Session

def here(stage):
    if stage == os.environ["STAGE"]:
        dist.barrier()
        if dist.get_rank() == 0:
            print("now", flush=True)
        time.sleep(1)

with Session() as ett:
    dist.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
    saver = ett.checkpointer(model=model, every_s=None)
    here("init")
    start = saver.restore()
    for number in ett.track(range(1, 1000), cursor=start):
        model(torch.ones(2, 4)).sum().backward()
        time.sleep(0.01)
        if number == 30:
            here("compile")
        ett.step(number)
        if number == 30:
            if os.environ["STAGE"] == "kill" and dist.get_rank() == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            with ett.phase("evaluation"):
                here("evaluation")
"""


@torch_needed
@pytest.mark.parametrize("stage", ["init", "compile", "evaluation"])
def test_two_ranks_save_together_soon_after_the_stage(job: Any, stage: str) -> None:
    agent = job.agent(RANKS, "--nproc", "2", STAGE=stage)
    assert agent.stdout.readline() == "now\n", agent.communicate()[1]
    sent = time.monotonic()
    agent.terminate()
    _, err = agent.communicate(timeout=60)
    assert agent.returncode == 143, err
    assert time.monotonic() - sent < 15
    (cursor,) = saved(job)
    record = read_cursor(job.run_dir.cursor)
    assert record is not None
    assert cursor == record.cursor < 400
    assert (cursor >= 30) is (stage != "init")


@torch_needed
def test_in_a_compilation_the_step_is_ended_and_saved(job: Any) -> None:
    terminated(job, in_step='\n            with ett.phase("compile"): here("now"); time.sleep(0.5)')
    assert saved(job) == [20]


@torch_needed
def test_in_an_evaluation_it_saves_without_another_step(job: Any) -> None:
    evaluate = '\n            with ett.phase("evaluation"): here("now"); time.sleep(0.5)'
    terminated(job, after_step=evaluate)
    assert saved(job) == [20]


@torch_needed
def test_a_long_evaluation_that_heeds_preempted_loses_nothing(job: Any) -> None:
    evaluate = """
            with ett.phase("evaluation"):
                here("now")
                for _ in range(600):
                    time.sleep(0.1)
                    if ett.preempted:
                        break
    """
    assert terminated(job, after_step=evaluate) < 15
    assert saved(job) == [20]


@torch_needed
def test_no_second_save_races_the_first(job: Any) -> None:
    slow = """
    from airflow_ett import checkpoints
    commit = checkpoints.commit
    def late(*arguments, **named):
        here("now") if named["cursor"] < 20 else None
        time.sleep(0.5)
        return commit(*arguments, **named)
    checkpoints.commit = late
    """
    terminated(job, every=0.0, init=slow)
    record = read_cursor(job.run_dir.cursor)
    assert record is not None
    first, last = saved(job)
    assert first < last == record.cursor
    ends = {e.data["span"]: e.time_ns for e in job.events(Kind.PHASE_END)}
    uploads = [
        (e.time_ns, ends[e.data["span"]])
        for e in job.events(Kind.PHASE_BEGIN)
        if e.data["phase"] == "checkpoint_upload"
    ]
    assert len(uploads) >= 2
    assert all(a[1] <= b[0] for a, b in itertools.pairwise(sorted(uploads)))


@torch_needed
def test_r26_a_last_save_may_take_the_whole_grace_that_was_asked_for(job: Any) -> None:
    """Longer than what the peers of a failed worker get, which is the shortest grace of all."""
    slow = """
    from airflow_ett import checkpoints
    commit = checkpoints.commit
    def late(*arguments, **named):
        time.sleep(6)
        return commit(*arguments, **named)
    checkpoints.commit = late
    """
    stages = {"init": slow, "in_step": "pass", "after_step": 'here("now")', "after_loop": "pass"}
    agent = job.agent(TRAIN.format(every=None, **stages), "--grace", "40")
    assert agent.stdout.readline() == "now\n", agent.communicate()[1]
    agent.terminate()
    _, err = agent.communicate(timeout=60)
    assert agent.returncode == 143, err
    record = read_cursor(job.run_dir.cursor)
    assert record is not None
    assert saved(job) == [record.cursor]
    reply = json.loads(job.run_dir.reply(AttemptId(1), 0).read_text())
    assert judge(Sighting("FAILED", None, replies=[reply])).cause == "preempted"
    metric = measure(job.events())
    assert metric.at_risk_ns == 0


@torch_needed
def test_a_rank_whose_peer_was_killed_ends_at_once(job: Any) -> None:
    """It waits for the peer in a collective, or notices: the agent leaves it five seconds."""
    agent = job.agent(RANKS, "--nproc", "2", STAGE="kill")
    _, err = agent.communicate(timeout=60)
    assert agent.returncode == 137, err
    reply = json.loads(job.run_dir.reply(AttemptId(1), 0).read_text())
    assert reply["first_failure_rank"] == 1
    first, second = reply["ranks"]
    assert 0 <= first["end_ns"] - second["end_ns"] < 8e9
    assert judge(Sighting("FAILED", None, replies=[reply])).cause == "infrastructure"


@torch_needed
def test_after_the_loop_what_was_not_saved_is(job: Any) -> None:
    terminated(job, after_loop='here("now"); time.sleep(0.5)')
    assert saved(job) == [100]


TOGETHER = """
import sys, time, types
from airflow_ett.trainer import Session

class Checkpointer:
    solo = False
    def __init__(self, *_, **__): pass
    def at_step(self, *, stop):
        if stop:
            print("asks its peers", flush=True)
            time.sleep(60)  # one of them is gone
    def join(self, timeout=None): print("waits", timeout, flush=True)
    def at_edge(self, *, stop): return 1 << 62
    def __getattr__(self, name): return lambda: None

sys.modules["airflow_ett.trainer.checkpointer"] = types.SimpleNamespace(Checkpointer=Checkpointer)
with Session() as ett:
    ett.checkpointer()
    for number in ett.track(range(1, 10_000)):
        time.sleep(0.01)
        ett.step(number)
        if number == 10:
            print("now", flush=True)
"""


def together(job: Any, told: Path | None) -> Any:
    environ = {} if told is None else {VARIABLE: str(told)}
    process = job.start(str(job.script(TOGETHER)), RANK="0", WORLD_SIZE="2", **environ)
    assert process.stdout.readline() == "now\n"
    process.terminate()
    return process


def test_ranks_ask_each_other_nothing_when_one_is_known_to_be_gone(
    job: Any, tmp_path: Path
) -> None:
    write_notice(tmp_path / "stop", Notice(preemption=False, grace_s=5.0))
    process = together(job, tmp_path / "stop")
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (143, "waits 4.0\n"), err
    assert job.events(Kind.SESSION_ENDED)[0].data["outcome"] == "preempted"


def test_a_rank_that_hangs_on_the_way_out_ends_before_it_is_killed(
    job: Any, tmp_path: Path
) -> None:
    write_notice(tmp_path / "stop", Notice(preemption=True, grace_s=1.0))
    sent = time.monotonic()
    process = together(job, tmp_path / "stop")
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (143, "asks its peers\n")
    assert 0.5 < time.monotonic() - sent < 5
    assert "still busy 1 s after SIGTERM" in err


def test_without_an_agents_word_the_ranks_ask_and_nobody_ends_them(job: Any) -> None:
    process = together(job, None)
    assert process.stdout.readline() == "asks its peers\n"
    time.sleep(0.3)
    assert process.poll() is None
    process.kill()


@pytest.mark.parametrize("code", [0, 143])
@pytest.mark.parametrize("how", ["asks", "former"], ids=["asks", "has a handler of its own"])
def test_a_script_that_exits_by_itself_is_preempted_and_not_complete(
    job: Any, code: int, how: str
) -> None:
    process = job.start(
        str(
            job.script(f"""
            import signal, sys, time
            from airflow_ett.trainer import Session
            if {how!r} == "former":
                signal.signal(signal.SIGTERM, lambda *_: sys.exit({code}))
            with Session() as ett:
                for number in ett.track(range(1, 10_000)):
                    time.sleep(0.01)
                    if number == 10:
                        print("now", flush=True)
                    if ett.preempted:
                        sys.exit({code})
                    ett.step(number)
            """)
        )
    )
    assert process.stdout.readline() == "now\n"
    process.terminate()
    _, err = process.communicate(timeout=30)
    assert process.returncode == 143, err
    assert job.events(Kind.SESSION_ENDED)[0].data["outcome"] == "preempted"
    assert job.events(Kind.FAILURE) == []


def test_a_notice_is_read_as_it_was_written_and_a_broken_one_is_none(tmp_path: Path) -> None:
    path = tmp_path / "stop"
    environ = {VARIABLE: str(path)}
    assert read_notice({}) is read_notice(environ) is None
    write_notice(path, Notice(preemption=True, grace_s=2.5))
    assert read_notice(environ) == (True, 2.5)
    for broken in ("", "[]", '{"preemption": true}', '{"preemption": true, "grace_s": "x"}'):
        path.write_text(broken)
        assert read_notice(environ) is None
