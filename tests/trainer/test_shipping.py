"""Trainers that share no storage: what they write arrives at the place of the job's log."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_ett.errors import ConfigurationError
from airflow_ett.events import (
    AttemptId,
    CursorFile,
    Event,
    Kind,
    LogWriter,
    RunDir,
    agent_writer,
    trainer_writer,
)
from airflow_ett.storage import FolderStorage
from airflow_ett.trainer import shipping
from airflow_ett.trainer.outbox import Outbox, size_of
from airflow_ett.trainer.place import Place, ask, read_place
from airflow_ett.trainer.report import NodeReport
from airflow_ett.trainer.shipping import Shipper, carry_over
from tests.trainer.places import MemoryPlace

A1 = AttemptId(1)


def wait(what: Callable[[], object]) -> None:
    until = time.monotonic() + 60
    while not what():
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.fixture
def there() -> MemoryPlace:
    return MemoryPlace()


@pytest.fixture
def shipper(job: Any, there: MemoryPlace, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that makes a quick shipper, whose words are in ``said``."""
    monkeypatch.setattr(shipping, "_FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(shipping, "_LONGEST_PAUSE_S", 0.02)

    def make(**options: Any) -> Shipper:
        options = {"period_s": 0.01, "connect": lambda: there, **options}
        return Shipper(stand(job), said.append, **options)

    said: list[str] = []
    make.said = said  # type: ignore[attr-defined]
    return make


def stand(job: Any, *attempt: int, node: int = 0) -> Place:
    context = replace(job.context, log=job.context.log or MemoryPlace.place)
    return Place(context, AttemptId(*(attempt or (1,))), node, 0, 1, node)


def writer(job: Any, pid: int = 1) -> LogWriter:
    name = agent_writer(A1, 0, pid)
    return LogWriter(job.run_dir.nodes / f"{name}.jsonl", job=job.context.key.id, writer=name)


def test_an_outage_costs_two_lines_and_nothing_else(
    job: Any, there: MemoryPlace, shipper: Any
) -> None:
    log, one = writer(job), shipper()
    there.fault = lambda method: "away"
    log.append("step")
    one.start()
    wait(lambda: there.requests["append"] > 3)
    (away,) = shipper.said
    for word in (str(job.context.key), "memory://place", "place is away", job.context.run_dir):
        assert word in away
    there.fault = lambda method: ""
    wait(lambda: there.numbers())
    wait(lambda: len(shipper.said) == 2)
    assert shipper.said[1] == "the log at memory://place is reached again: all was sent"
    log.append("step")
    one.close(lambda: 30)
    assert there.numbers() == {log.writer: [0, 1]}
    assert len(shipper.said) == 2


def test_the_end_waits_no_longer_than_it_may_and_says_what_is_left(
    job: Any, there: MemoryPlace, shipper: Any
) -> None:
    log, one = writer(job), shipper()
    log.append("step")
    there.fault = lambda method: "away"
    one.start()
    wait(lambda: there.requests["append"])
    end = time.monotonic() + 0.3
    one.close(lambda: end - time.monotonic())
    assert time.monotonic() < end + 5
    left = log.path.stat().st_size
    for word in (f"{left} bytes", "memory://place", f"airflow-ett ingest {job.context.run_dir}"):
        assert word in shipper.said[-1]
    there.fault = lambda method: ""
    shipper().close(lambda: 30)  # the next attempt on the node; it was never started
    assert there.numbers() == {log.writer: [0]}


def test_a_place_that_hangs_holds_nothing_up(job: Any, there: MemoryPlace, shipper: Any) -> None:
    go_on = threading.Event()

    def fault(method: str) -> str:
        go_on.wait(60)
        return ""

    there.fault = fault
    writer(job).append("step")
    one = shipper()
    one.start()
    wait(lambda: there.requests["append"])
    begun = time.monotonic()
    one.close(lambda: begun + 0.2 - time.monotonic())
    assert time.monotonic() - begun < 5
    assert "no answer in time" in shipper.said[-1]
    go_on.set()
    with pytest.raises(TimeoutError, match="no answer within"):
        ask(lambda: time.sleep(0.5), 0.01)


@pytest.mark.parametrize(
    "error", [PermissionError(13, "refused"), ConfigurationError("[ett] api_url", "no requests")]
)
def test_what_waiting_does_not_mend_is_not_waited_for(
    job: Any, shipper: Any, error: Exception
) -> None:
    def connect() -> MemoryPlace:
        raise error

    writer(job).append("step")
    begun = time.monotonic()
    one = shipper(connect=connect)
    one.start()
    one.close(lambda: begun + 60 - time.monotonic())
    assert time.monotonic() - begun < 20
    assert "airflow-ett ingest" in shipper.said[-1]


def test_no_secret_is_told(job: Any, shipper: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ETT_TOKEN", "ett1.secret-of-this-job")

    def connect() -> MemoryPlace:
        raise OSError("GET with ett1.secret-of-this-job failed")

    end = time.monotonic() + 0.3
    shipper(connect=connect).close(lambda: end - time.monotonic())
    assert len(shipper.said) == 2
    assert not any("secret-of-this-job" in text for text in shipper.said)


@pytest.mark.parametrize(("pid", "node"), [(7, 0), (7, 1), (None, 0)])
def test_the_interval_that_a_killed_trainer_left_open_is_closed_by_the_next(
    job: Any, pid: int | None, node: int
) -> None:
    """Not by another node's agent on the same host, and not by a later Session of the process."""
    file = CursorFile(job.run_dir.cursor)
    file.write(*A1, 0, pid or os.getpid(), 3, 50, 60, 100, 200, 0, 5, 100, 0, 0, 0)
    log = writer(job, 2)
    carry_over(stand(job, 2, node=node), log)
    left = [(e.writer, e.seq, e.data["cursor_to"]) for e in job.events(Kind.INTERVAL)]
    closes = (pid, node) == (7, 0)
    assert left == ([(trainer_writer(A1, 0, 7), 3, 50)] if closes else [])
    file.close()


def test_the_nodes_own_folder_is_found_by_a_name_from_elsewhere(job: Any, tmp_path: Path) -> None:
    job.context = replace(job.context, log="https://api/logs/x", run_dir="test/dag/run/train/g1")
    environ = job.environ(TMPDIR=str(tmp_path / "local"))
    place = read_place(environ)
    assert place is not None
    root = tmp_path / "local" / f"airflow-ett-{os.getuid()}"
    assert place.run_dir.path == root / "test/dag/run/train/g1"
    assert root.stat().st_mode & 0o777 == 0o700
    shutil.rmtree(root)
    root.symlink_to(tmp_path)
    with pytest.raises(Exception, match="somebody else's"):
        read_place(environ)


TRAIN = """
import os, time
from airflow_ett.trainer import Session
with Session() as ett:
    for number in ett.track(range(1, 100_000)):
        time.sleep(0.01)
        ett.step(number)
        if number == {steps}: break
"""


def elsewhere(job: Any, tmp_path: Path) -> tuple[RunDir, FolderStorage]:
    """Have the job's log lie in another folder than what its trainers write."""
    place = tmp_path / "place"
    job.context = replace(job.context, log=str(place))
    return RunDir(place), FolderStorage(place)


def arrived(storage: FolderStorage, *kinds: Kind) -> list[Event]:
    return [event for event in storage.events("nodes") if not kinds or event.kind in kinds]


def test_an_agents_node_tells_its_whole_story_elsewhere(job: Any, tmp_path: Path) -> None:
    run, storage = elsewhere(job, tmp_path)
    agent = job.agent(TRAIN.format(steps=30), "--nproc", "1")
    _, err = agent.communicate(timeout=60)
    assert (agent.returncode, err) == (0, "")
    here = job.events()
    assert sorted((e.writer, e.seq) for e in arrived(storage)) == [
        (e.writer, e.seq) for e in sorted(here, key=lambda e: (e.writer, e.seq))
    ]
    assert {e.kind for e in here} >= {Kind.SESSION_ENDED, Kind.PROCESS_ENDED, Kind.INTERVAL}
    record = run.last_cursor()
    assert record is not None
    assert record.cursor == 30
    assert run.heartbeat(A1, 0).exists()
    assert json.loads(run.reply(A1, 0).read_bytes())["first_failure_rank"] is None


def test_after_a_kill_the_next_attempt_on_the_node_sends_the_rest(job: Any, tmp_path: Path) -> None:
    run, storage = elsewhere(job, tmp_path)
    run.path.write_text("in the way")  # the place is away
    agent = job.agent(TRAIN.format(steps=0), "--nproc", "1")
    wait(lambda: (record := job.run_dir.last_cursor()) and record.cursor > 20)
    (worker,) = [e.data["pid"] for e in job.events(Kind.PROCESS_STARTED) if e.rank == 0]
    agent.kill()
    agent.wait()
    wait(lambda: not Path(f"/proc/{worker}").exists())
    record = job.run_dir.last_cursor()
    before = len(job.events())
    assert before >= 3
    run.path.unlink()
    job.next_submission()
    again = job.agent(TRAIN.format(steps=5), "--nproc", "1")
    _, err = again.communicate(timeout=60)
    assert again.returncode == 0, err
    former = [e for e in arrived(storage) if e.attempt == A1]
    assert len(former) == before + 1
    interval = max((e for e in former if e.kind == Kind.INTERVAL), key=lambda e: e.seq)
    assert (interval.seq, interval.data["cursor_to"]) == (record.seq, record.cursor)
    assert not run.reply(A1, 0).exists()


def test_an_agent_whose_place_is_away_keeps_to_the_grace(job: Any, tmp_path: Path) -> None:
    run, _ = elsewhere(job, tmp_path)
    run.path.write_text("in the way")
    job.context = replace(job.context, grace_s=1.0)
    agent = job.agent("import time; print('ready', flush=True); time.sleep(60)")
    agent.stdout.readline()
    sent = time.monotonic()
    agent.terminate()
    _, err = agent.communicate(timeout=60)
    assert time.monotonic() - sent < 10
    assert agent.returncode == 143
    assert f"with: airflow-ett ingest {job.context.run_dir}" in err


def test_a_sigterm_shortens_the_wait_for_the_place_and_changes_no_exit_code(
    job: Any, tmp_path: Path
) -> None:
    run, _ = elsewhere(job, tmp_path)
    run.path.write_text("in the way")
    job.context = replace(job.context, grace_s=1.0)
    agent = job.agent("print('trained')")
    wait(lambda: job.run_dir.reply(A1, 0).exists())
    sent = time.monotonic()
    agent.terminate()
    agent.communicate(timeout=60)
    assert time.monotonic() - sent < 10
    assert agent.returncode == 0


def test_a_session_without_our_agent_sends_by_itself_and_its_children_do_not(
    job: Any, tmp_path: Path
) -> None:
    run, storage = elsewhere(job, tmp_path)
    done = job.run("""
        import os, time
        from airflow_ett.trainer import Session
        with Session() as ett:
            for number in ett.track(range(1, 20)):
                ett.step(number)
                if number == 10 and not (child := os.fork()):
                    time.sleep(0.1)
                    os._exit(0)
            os.waitpid(child, 0)
    """)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(arrived(storage)) == len(job.events()) > 0
    assert arrived(storage, Kind.SESSION_ENDED)
    record = run.last_cursor()
    assert record is not None
    assert record.cursor == 19
    assert not list(run.nodes.glob("heartbeat-*"))


def test_a_trainer_knows_how_far_the_job_got_on_other_nodes(job: Any, tmp_path: Path) -> None:
    elsewhere(job, tmp_path)
    assert job.run(TRAIN.format(steps=30)).returncode == 0
    shutil.rmtree(job.run_dir.path)  # the next attempt runs on another node
    job.next_submission()
    assert job.run(TRAIN.format(steps=3)).returncode == 0
    (started,) = job.events(Kind.SESSION_STARTED)
    assert started.data["cursor_hwm"] == 30


WHO_HAS_IT = """
import os
os.write(1, f"{os.environ['RANK']} {os.environ.get('ETT_TOKEN')}\\n".encode())
"""


def test_only_the_rank_that_commits_gets_the_token(job: Any) -> None:
    agent = job.agent(
        WHO_HAS_IT,
        "--nproc",
        "2",
        ETT_TOKEN="ett1.secret",
    )
    out, err = agent.communicate(timeout=60)
    assert agent.returncode == 0
    assert sorted(out.splitlines()) == ["0 ett1.secret", "1 None"]
    assert "ett1.secret" not in err


@pytest.mark.parametrize("failed", [True, False])
def test_what_other_nodes_tell_is_read_at_the_place(job: Any, tmp_path: Path, failed: bool) -> None:
    run, storage = elsewhere(job, tmp_path)
    told = {"node": 1, "first_failure_rank": 1 if failed else None, "sigterm_received_ns": None}
    storage.write(f"replies/{A1}-n1.json", json.dumps(told).encode())
    storage.write("replies/2.0.0-n1.json", b"not of this attempt")
    assert NodeReport(stand(job), 2).peer_failed() is failed
    shutil.rmtree(run.path)
    run.path.write_text("in the way")
    assert NodeReport(stand(job), 2).peer_failed() is False


def test_a_stall_on_the_first_node_is_seen_by_the_others(job: Any, tmp_path: Path) -> None:
    run, storage = elsewhere(job, tmp_path)
    report = NodeReport(stand(job, node=1), 2)
    report.begin()
    report.ship()
    assert report.stacks_size(node=0) == 0
    storage.write(size_of(f"nodes/{run.stacks(A1, 0).name}"), b"123")
    report._peer_look = 0.0
    wait(lambda: report.stacks_size(node=0) == 123)
    report.close(lambda: 30)


def test_a_container_started_again_without_its_files_loses_no_event(
    job: Any, there: MemoryPlace, tmp_path: Path
) -> None:
    """Its attempt and its process id are those of before: so are its writers' names."""
    for turn in range(2):
        place = stand(job)
        place = place._replace(context=replace(place.context, run_dir=str(tmp_path / str(turn))))
        NodeReport(place, 1).begin()
        Outbox(place, None, print).ship(there)
        time.sleep(0.002)
    (log,) = there.logs.values()
    assert len(log) >= 2
    assert len({(event.writer, event.seq) for event in log}) == len(log)
