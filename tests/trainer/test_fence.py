"""One trainer commits at a time: real trainings beside each other on one checkpoint directory."""

from __future__ import annotations

import errno
import importlib.util
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

from airflow_ett import checkpoints
from airflow_ett.checkpoints import FileDigest
from airflow_ett.checkpoints.holder import Holder
from airflow_ett.checkpoints.lease import Lease
from airflow_ett.errors import CheckpointError
from airflow_ett.events import AttemptId, Kind
from airflow_ett.trainer import fence
from airflow_ett.trainer.committing import Committer
from airflow_ett.trainer.fence import Fence
from airflow_ett.trainer.journal import Journal
from airflow_ett.trainer.place import Place
from tests.s3 import new_bucket
from tests.trainer.places import MemoryPlace

TRAIN = """
import json, os, time
import torch
from airflow_ett.trainer import Session
restore, total, pause = json.loads(os.environ["PLAN"])
model = torch.nn.Linear(4, 1)
with Session() as ett:
    saver = ett.checkpointer(model=model, every_s=0)
    start = saver.restore() if restore else 0
    print("start", start, flush=True)
    for number, _ in enumerate(ett.track(range(start, total), cursor=start), start=1):
        ett.step(number)
        time.sleep(pause)
"""


def torch_needed(test: Callable[..., None]) -> Callable[..., None]:
    """Mark a test that trains, and skip it where there is nothing to train with."""
    missing = importlib.util.find_spec("torch") is None
    return pytest.mark.torch(pytest.mark.skipif(missing, reason="needs torch")(test))


def start(job: Any, *, restore: bool = True, total: int = 100_000, pause: float = 0.01) -> Any:
    return job.start(str(job.script(TRAIN)), PLAN=json.dumps([restore, total, pause]))


def finish(process: Any) -> tuple[str, str]:
    out, err = process.communicate(timeout=90)
    return out, err


def committed(job: Any) -> list[Any]:
    return checkpoints.list_checkpoints(job.context.checkpoints)


def other_job(root: Path) -> Path:
    """Leave another job's checkpoint and lease in ``root``; return the checkpoint's folder."""
    holder = Holder("o" * 20, "dag.other", AttemptId(1), "node-b", 5, "2026-11-29T18:00:00+00:00")
    assert Lease(root, holder).hold() is None
    path = root / checkpoints.folder_name(0, AttemptId(1))
    path.mkdir()
    (path / "weights").write_bytes(b"w")
    return checkpoints.commit(path, job="o" * 20, attempt=AttemptId(1), epoch=1, cursor=0).path


@torch_needed
def test_a_replaced_trainer_stops_and_the_newer_one_loses_nothing(job: Any) -> None:
    old = start(job, pause=0.05)
    while len(committed(job)) < 2:
        assert old.poll() is None
    job.next_submission()
    reached = committed(job)[-1].cursor
    new = start(job, total=reached + 300, pause=0.002)
    _, told = finish(old)
    assert old.returncode == 1
    assert "taken over by attempt 2.0.0" in told
    assert "the training is complete" not in told
    mine = [e for e in job.events() if e.attempt == AttemptId(1)]
    (ended,) = [e.data for e in mine if e.kind == Kind.SESSION_ENDED]
    assert ended["outcome"] == "error"
    assert told.count("could not be saved") <= 1  # the one that found out, and no last one
    finish(new)
    assert new.returncode == 0
    began = next(e.time_ns for e in job.events(Kind.RESUMED))
    late = [e for e in job.events(Kind.CHECKPOINT_COMMITTED) if e.time_ns > began]
    assert {e.attempt.submission for e in late if e.attempt} == {2}
    assert [c.attempt for c in committed(job)] == [AttemptId(2)] * 2
    for one in committed(job):
        checkpoints.verify(one)


@torch_needed
def test_an_older_attempt_that_comes_late_does_not_begin(job: Any) -> None:
    older = job.context
    job.next_submission()
    finish(start(job, total=20))
    before = [path for path in Path(older.checkpoints).rglob("*") if path.is_file()]
    job.context = older
    late = start(job)
    out, told = finish(late)
    assert (late.returncode, out) == (1, "")
    assert "taken over by attempt 2.0.0" in told
    (failure,) = job.events(Kind.FAILURE)
    assert failure.data["type"] == "CheckpointError"
    assert [path for path in Path(older.checkpoints).rglob("*") if path.is_file()] == before


@torch_needed
@pytest.mark.parametrize("restore", [True, False], ids=["restore", "save"])
def test_another_jobs_directory_is_refused_before_anything_is_written(
    job: Any, restore: bool
) -> None:
    root = Path(job.context.checkpoints)
    theirs = other_job(root)
    before = sorted(root.rglob("*"))
    process = start(job, restore=restore, total=30)
    out, told = finish(process)
    assert process.returncode == 1
    assert ("start" in out) is not restore
    assert "belong to attempt 1.0.0 of job dag.other (process 5 on node-b since 2026" in told
    assert sorted(root.rglob("*")) == before
    checkpoints.verify(checkpoints.open_checkpoint(str(theirs)))


@torch_needed
def test_every_rank_hears_of_a_refusal(job: Any) -> None:
    other_job(Path(job.context.checkpoints))
    code = """
    import os
    import torch
    from airflow_ett.errors import CheckpointError
    from airflow_ett.trainer import Session
    torch.distributed.init_process_group("gloo")
    with Session() as ett:
        try:
            ett.checkpointer(model=torch.nn.Linear(4, 1)).restore()
        except CheckpointError as error:
            os.write(1, f"{os.environ['RANK']} {error}\\n".encode())  # in one piece
        torch.distributed.barrier()
        os._exit(0)
    """
    agent = job.agent(code, "--nproc", "2")
    out, told = finish(agent)
    assert agent.returncode == 0, told
    assert sorted(line.split(" of job dag.other")[0] for line in out.splitlines()) == [
        f"{rank} the checkpoints in {job.context.checkpoints} belong to attempt 1.0.0"
        for rank in range(2)
    ]


@torch_needed
def test_a_directory_that_cannot_be_leased_is_a_warning_until_it_can_be(job: Any) -> None:
    root = Path(job.context.checkpoints)
    root.mkdir()
    (root / ".lease").write_text("in the way")
    process = start(job, total=150)
    assert process.stdout.readline() == "start 0\n"
    while not job.events(Kind.CHECKPOINT_SAVED):
        assert process.poll() is None
    assert committed(job) == []
    (root / ".lease").unlink()
    _, told = finish(process)
    assert process.returncode == 0
    assert f"Nothing can be committed in {root} for now" in told
    assert committed(job)[-1].cursor == 150


def place(job: Any, *attempt: int) -> Place:
    return Place(job.context, AttemptId(*attempt), 0, 0, 1, 0)


def test_where_the_checkpoints_are_gone_no_folder_is_made(job: Any) -> None:
    job.context = replace(job.context, resume_cursor=50)
    root = Path(job.context.checkpoints)
    assert Fence(place(job, 1), root, Journal(None), print).enter() is None
    assert not root.exists()


def test_the_heartbeat_is_renewed_and_tells_of_a_newer_trainer_between_commits(
    job: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fence, "BEAT_S", 0.01)
    root, replaced = Path(job.context.checkpoints), threading.Event()
    old = Fence(place(job, 1), root, Journal(None), replaced.set)
    assert old.enter() is None
    lease = root / ".lease/00000001.json"
    os.utime(lease, (0, 0))
    until = time.monotonic() + 30
    while lease.stat().st_mtime == 0:
        assert time.monotonic() < until
    assert old.lost is None
    new = Fence(place(job, 1, 1), root, Journal(None), print)
    assert new.enter() is None
    assert replaced.wait(30)
    with pytest.raises(CheckpointError, match=r"taken over by attempt 1\.1\.0"):
        old.check()
    assert (old.held, new.held) == (False, True)
    for one in (old, new):
        one.close()


def test_without_knowing_nothing_is_committed(job: Any) -> None:
    root = Path(job.context.checkpoints)
    mine = Fence(place(job, 1), root, Journal(None), print)
    assert mine.enter() is None
    shutil.rmtree(root)
    root.write_text("in the way")
    with pytest.raises(OSError, match="Not a directory"):
        mine.check()
    assert not mine.held
    mine.close()


@pytest.mark.parametrize("replaced", [True, False])
def test_a_folder_that_may_be_somebody_elses_is_left_alone(job: Any, replaced: bool) -> None:
    """Two processes of one attempt save under the same names."""
    root = Path(job.context.checkpoints)
    mine = Fence(place(job, 1), root, Journal(None), print)
    assert mine.enter() is None
    path = root / checkpoints.folder_name(8, AttemptId(1))
    path.mkdir()
    committer = Committer(place(job, 1), root, Journal(None), mine)
    full = OSError(errno.EIO, "the disk is broken")

    def write() -> dict[str, FileDigest]:
        if not replaced:
            raise full
        again = Fence(place(job, 1), root, Journal(None), print)
        assert again.enter() is None
        again.close()
        return {}

    with pytest.raises((CheckpointError, OSError), match="taken over" if replaced else "broken"):
        committer.commit(path, 8, write, anchor=False)
    committer.clean_up(path, full)
    assert path.exists() is replaced
    assert committed(job) == []
    mine.close()


class Elsewhere(Place):
    """A place whose log lies in memory."""

    there = MemoryPlace()

    def log(self) -> MemoryPlace:
        return self.there


@pytest.fixture
def apart(job: Any) -> Elsewhere:
    """A trainer whose job's log lies elsewhere, fresh."""
    job.context = replace(job.context, log=MemoryPlace.place)
    Elsewhere.there = MemoryPlace()
    return Elsewhere(*place(job, 1))


def test_a_submission_that_followed_is_seen_where_the_log_lies(job: Any, apart: Elsewhere) -> None:
    root = Path(job.context.checkpoints)
    mine = Fence(apart, root, Journal(None), print)
    assert mine.enter() is None
    mine.check()
    apart.there.write("launcher/submissions/0002.json", b"{}")
    with pytest.raises(CheckpointError, match="submission 2 has replaced submission 1"):
        mine.check()
    assert (root / ".lease/00000001.json").exists()
    mine.close()


def test_while_the_log_is_away_the_lease_beside_the_checkpoints_decides_alone(
    job: Any, apart: Elsewhere
) -> None:
    root = Path(job.context.checkpoints)
    mine = Fence(apart, root, Journal(None), print)
    assert mine.enter() is None
    apart.there.fault = lambda method: "away"
    mine.check()
    later = Fence(Elsewhere(*place(job, 2)), root, Journal(None), print)
    assert later.enter() is None
    with pytest.raises(CheckpointError, match="taken over"):
        mine.check()
    for one in (mine, later):
        one.close()


def test_a_store_without_exclusive_files_has_its_lease_beside_the_log(
    job: Any, apart: Elsewhere, tmp_path: Path
) -> None:
    root = checkpoints.folder(f"local://{tmp_path}/bucket")
    mine = Fence(apart, root, Journal(None), print)
    assert mine.enter() is None
    assert ".lease/00000001.json" in apart.there.files
    mine.check()
    apart.there.fault = lambda method: "away"
    with pytest.raises(OSError, match="away"):
        mine.check()
    assert not (tmp_path / "bucket").exists()
    apart.there.fault = lambda method: ""
    later = Fence(Elsewhere(*place(job, 1, 1)), root, Journal(None), print)
    assert later.enter() is None
    with pytest.raises(CheckpointError, match=r"local://.*/bucket were taken over by attempt 1\.1"):
        mine.check()
    for one in (mine, later):
        one.close()


def test_an_object_stores_lease_lies_with_the_checkpoints(
    job: Any, apart: Elsewhere, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("moto")
    uri = new_bucket(monkeypatch)
    root = checkpoints.folder(f"{uri}/checkpoints")
    mine = Fence(apart, root, Journal(None), print)
    assert mine.enter() is None
    mine.check()
    apart.there.fault = lambda method: "away"
    mine.check()
    assert list(apart.there.files) == []
    assert checkpoints.list_checkpoints(str(root)) == []
    other = replace(job.context, key=replace(job.context.key, task_id="other"))
    theirs = Fence(Elsewhere(other, AttemptId(1), 0, 0, 1, 0), root, Journal(None), print)
    refused = theirs.enter()
    assert f"the checkpoints in {root} belong to attempt 1.0.0" in str(refused)
    assert f"remove {root}/.lease/00000001.json" in str(refused)
    later = Fence(Elsewhere(*place(job, 2)), root, Journal(None), print)
    assert later.enter() is None
    with pytest.raises(CheckpointError, match="taken over by attempt 2"):
        mine.check()
    for one in (mine, later, theirs):
        one.close()
