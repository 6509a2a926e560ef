"""The ranks without a log: what they tell reaches the numbers, and no file of theirs is left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_ett.events import AttemptId, Event, Kind, LogWriter, read_log
from airflow_ett.metric import measure
from airflow_ett.trainer.rankreport import RankReports, file_of

ATTEMPT = AttemptId(1)


class Node:
    """An agent's log, and the files of the ranks 1, 2, … in which a test tells."""

    def __init__(self, folder: Path, ranks: int) -> None:
        self.path = folder / "agent.jsonl"
        log = LogWriter(self.path, job="j", writer="agent", attempt=ATTEMPT)
        files = {rank: file_of(folder, rank) for rank in range(1, ranks + 1)}
        self.reports = RankReports(log, files)
        self.files = files
        self.logs: dict[int, LogWriter] = {}

    def tell(self, rank: int, kind: Kind, time: int, **data: Any) -> None:
        if rank not in self.logs:
            self.logs[rank] = LogWriter(
                self.files[rank], job="j", writer=f"r{rank}", attempt=ATTEMPT, rank=rank
            )
        self.logs[rank].append(kind, data, time_ns=time)

    def phase(self, rank: int, name: str, begin: int, end: int, lane: str = "main") -> None:
        self.tell(rank, Kind.PHASE_BEGIN, begin, span=begin, phase=name, lane=lane)
        self.tell(rank, Kind.PHASE_END, end, span=begin)

    def steps(self, rank: int, begin: int, end: int, steps: int = 1) -> None:
        parts = {"step_ns": end - begin - 1, "wait_ns": 1, "other_ns": 0}
        span = {"from": begin, "to": end, "cursor_from": 0, "cursor_to": steps}
        self.tell(rank, Kind.INTERVAL, end, **span, steps=steps, **parts)

    @property
    def told(self) -> list[tuple[int | None, str, Any]]:
        """What the agent passed on: rank, kind, and a phase's name, span or save."""
        names = ("phase", "span", "checkpoint", "from", "type")
        return [
            (e.rank, str(e.kind), next((e.data[n] for n in names if n in e.data), None))
            for e in read_log(self.path).events
        ]


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path, ranks=2)


def begin(node: Node, rank: int, first_step: int) -> None:
    node.tell(rank, Kind.SESSION_STARTED, 10)
    node.phase(rank, "warm_up", 11, 12, lane="t0")
    node.phase(rank, "device_init", 13, first_step - 5)
    node.steps(rank, first_step, first_step + 10)


def test_how_the_last_rank_begins_is_told_once_and_no_other(node: Node) -> None:
    begin(node, 2, first_step=50)
    begin(node, 1, first_step=40)
    story = [
        (2, "session_started", None),
        (2, "phase_begin", "device_init"),
        (2, "phase_end", "r2.13"),
        (2, "interval", 50),
    ]
    node.reports.look()
    assert node.told == story
    node.phase(2, "evaluation", 70, 80)
    node.steps(2, 80, 90)
    for rank in (1, 2):
        node.reports.ended(rank)
    assert node.told == story


def test_the_one_that_all_wait_for_is_told_while_it_is_waited_for(node: Node) -> None:
    node.tell(2, Kind.SESSION_STARTED, 10)
    node.reports.look()
    assert node.told == []  # it may be rank 1
    begin(node, 1, first_step=40)
    node.reports.look()
    assert node.told == [(2, "session_started", None)]
    node.tell(2, Kind.PHASE_BEGIN, 60, span=7, phase="preproc_creation", lane="main")
    node.reports.look()
    assert node.told[1:] == [(2, "phase_begin", "preproc_creation")]


def test_a_rank_that_never_began_is_the_last(node: Node) -> None:
    begin(node, 1, first_step=40)
    node.reports.ended(1)
    node.tell(2, Kind.PHASE_BEGIN, 20, span=1, phase="device_init", lane="main")
    node.tell(2, Kind.FAILURE, 30, type="OSError")
    node.reports.ended(2)
    assert node.told == [(2, "failure", "OSError"), (2, "phase_begin", "device_init")]


def test_of_each_save_the_longest_blocking_is_told(node: Node) -> None:
    for rank, ns in ((1, 5), (2, 9)):
        node.tell(rank, Kind.CHECKPOINT_SAVED, 100, checkpoint="a", cursor=1, blocking_ns=ns)
    node.tell(1, Kind.CHECKPOINT_SAVED, 200, checkpoint="b", cursor=2, blocking_ns=3)
    node.reports.look()
    assert node.told == [(2, "checkpoint_saved", "a")]
    for rank in (1, 2):
        node.reports.ended(rank)
    assert node.told[1:] == [(1, "checkpoint_saved", "b")]


def test_with_its_end_a_rank_tells_what_it_spent(node: Node) -> None:
    begin(node, 1, first_step=40)
    node.steps(1, 50, 60, steps=4)
    node.phase(1, "evaluation", 60, 70)
    node.phase(1, "evaluation", 80, 85)
    assert node.reports.ended(1) == {
        "phases": {"device_init": 22, "evaluation": 15},
        "steps": 5,
        "step_ns": 18,
        "wait_ns": 2,
        "first_step": 40,
    }
    assert node.reports.ended(2) is None  # it had no Session
    assert node.reports.ended(0) is None  # it has a log


def test_what_is_no_event_of_ours_stops_nothing(node: Node) -> None:
    begin(node, 1, first_step=40)
    for kind in (Kind.INTERVAL, Kind.PHASE_BEGIN, Kind.PHASE_END, Kind.CHECKPOINT_SAVED):
        node.tell(1, kind, 60)
    with node.files[1].open("a") as file:
        file.write("rubbish\n")
    spent = node.reports.ended(1)
    assert spent is not None
    assert spent["steps"] == 1


TRAIN = """
import os, time
from airflow_ett.trainer import Session
rank, slow = int(os.environ["RANK"]), int(os.environ["SLOW"])
def batches():
    time.sleep(0.5 if rank == slow else 0.02)
    yield from range(1, 101)
with Session() as ett:
    with ett.phase("device_init"):
        time.sleep(0.05)
    with ett.phase("preproc_creation"):
        time.sleep(0.8 if rank == slow else 0.1)
    for number in ett.track(batches()):
        time.sleep(0.015)
        ett.step(number)
    with ett.phase("evaluation"):
        time.sleep(0.3 if rank == 1 else 0.02)
    if rank == int(os.environ.get("FAILS", -1)):
        raise ValueError("as planned")
"""


def run_node(job: Any, ranks: int, **environ: str) -> list[Event]:
    agent = job.agent(TRAIN, "--nproc", str(ranks), **environ)
    _, err = agent.communicate(timeout=60)
    assert agent.returncode == int("FAILS" in environ), err
    events: list[Event] = job.events()
    return events


@pytest.mark.parametrize("ranks", [2, 4])
def test_the_job_waits_for_its_last_rank_and_knows_the_slowest(job: Any, ranks: int) -> None:
    last = ranks - 1
    events = run_node(job, ranks, SLOW=str(last))
    assert len(list(job.run_dir.logs())) == 2  # the agent's and the first rank's
    assert not any(e.kind == Kind.PHASE_BEGIN and e.rank not in (0, last) for e in events)
    seconds = {name: ns / 1e9 for name, ns in measure(events).phases_ns.items()}
    assert 0.8 <= seconds["preproc_creation"] < 1.2
    assert 0.5 <= seconds["first_batch"] < 0.9
    spent = {e.rank: e.data["spent"] for e in events if "spent" in e.data}
    assert sorted(spent) == list(range(1, ranks))
    assert all(told["steps"] == 100 for told in spent.values())
    slowest = measure(events).attempts[0].slowest
    assert slowest["preproc_creation"].rank == last
    assert slowest["evaluation"].rank == 1


def test_a_failure_of_another_rank_is_told_when_it_happened(job: Any) -> None:
    events = run_node(job, 2, SLOW="0", FAILS="1")
    failures = [e for e in events if e.kind == Kind.FAILURE and e.rank == 1]
    ended = next(e for e in events if e.kind == Kind.PROCESS_ENDED and e.rank == 1)
    assert [e.data["type"] for e in failures] == ["ValueError", "ValueError"]
    assert failures[0].time_ns < failures[1].time_ns == ended.time_ns


def test_a_killed_rank_has_told_what_it_had_closed(job: Any) -> None:
    code = TRAIN.replace(
        'if rank == int(os.environ.get("FAILS", -1)):\n        raise ValueError("as planned")',
        "if rank == 1:\n        os.kill(os.getpid(), 9)",
    )
    agent = job.agent(code, "--nproc", "2", SLOW="0")
    agent.communicate(timeout=60)
    assert agent.returncode == 137
    (spent,) = [e.data["spent"] for e in job.events() if "spent" in e.data]
    assert spent["steps"] == 100
    assert spent["phases"]["evaluation"] >= 300_000_000


def test_under_another_launcher_the_other_ranks_tell_nothing(job: Any) -> None:
    done = job.run(TRAIN, RANK="1", LOCAL_RANK="1", WORLD_SIZE="2", SLOW="0")
    assert done.returncode == 0, done.stderr
    assert list(job.run_dir.logs()) == []
