"""Saves that fail: a full disk, a broken rank, an unwritable place. The training goes on."""

from __future__ import annotations

import errno
import json
import logging
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from airflow_ett import checkpoints
from airflow_ett.checkpoints import Checkpoint, FileDigest
from airflow_ett.checkpoints.manifest import digest_file
from airflow_ett.events import AttemptId, Kind
from airflow_ett.trainer.committing import Committer
from airflow_ett.trainer.fence import Fence
from airflow_ett.trainer.journal import Journal
from airflow_ett.trainer.place import read_place

pytestmark = pytest.mark.torch
pytest.importorskip("torch")

TRAIN = """
import json, os, time
import torch
from airflow_ett.trainer import Session
options = json.loads(os.environ["OPTIONS"])
model = torch.nn.Linear(250, 1000)  # 1 MB
with Session() as ett:
    saver = ett.checkpointer(model=model, every_s=0.0, **options)
    start = saver.restore()
    for number, _ in enumerate(ett.track(range(start, start + 12), cursor=start), start=1):
        ett.step(number)
        print("step", start + number, flush=True)
        time.sleep(0.15)
"""


def train(job: Any, *, environ: dict[str, str] | None = None, **options: Any) -> Any:
    return job.run(TRAIN, OPTIONS=json.dumps(options), **(environ or {}))


def committed(job: Any) -> list[Checkpoint]:
    return checkpoints.list_checkpoints(job.context.checkpoints)


@pytest.fixture
def small_disk(job: Any, tmp_path: Path) -> Iterator[Path]:
    """The job's checkpoints lie on a disk with space for two and a half of them."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2560k", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a small disk can be mounted by root alone")
    job.context = replace(job.context, checkpoints=str(disk / "checkpoints"))
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


def test_on_a_full_disk_room_is_made_and_the_next_save_succeeds(job: Any, small_disk: Path) -> None:
    done = train(job)
    assert done.returncode == 0, done.stderr
    assert "OSError: [Errno 28] No space left on device" in done.stderr
    assert done.stderr.count("is full: of its checkpoints only the newest is kept") == 1
    cursors = [e.data["cursor"] for e in job.events(Kind.CHECKPOINT_COMMITTED)]
    assert len(cursors) > 3  # two fit beside each other
    assert cursors[-1] == 12
    assert {p.name for p in Path(job.context.checkpoints).iterdir()} == {
        ".lease",
        *(c.path.name for c in committed(job)),
    }
    for one in committed(job):
        checkpoints.verify(one)


def test_a_disk_that_others_have_filled_ends_the_job_with_a_clear_word(
    job: Any, small_disk: Path
) -> None:
    (small_disk / "others").write_bytes(b"x" * 2_000_000)
    done = train(job)
    assert done.returncode == 1
    assert "step 12" in done.stdout
    assert "the training is complete, but its last state (cursor 12) could not be saved" in (
        done.stderr
    )
    assert "No space left" in done.stderr.splitlines()[-1]
    assert [p.name for p in Path(job.context.checkpoints).iterdir()] == [".lease"]


def test_where_nothing_can_be_written_the_next_step_raises_if_that_is_wanted(job: Any) -> None:
    Path(job.context.checkpoints).write_text("in the way")
    done = train(job, on_failed_save="raise")
    assert done.returncode == 1
    assert "step 3" not in done.stdout
    last = done.stderr.splitlines()[-1]
    assert "CheckpointError: job dag.train run run generation 1, attempt 1.0.0" in last
    assert "Clear the task" in last
    assert done.stderr.count("could not be saved") == 1


@pytest.mark.parametrize(
    ("options", "environ"),
    [({"background": False}, {}), ({"background": True}, {"ETT_BACKGROUND_SAVES": "0"})],
    ids=["by the code", "by the environment"],
)
def test_without_background_the_step_waits_for_all_of_it(
    job: Any, options: dict[str, bool], environ: dict[str, str]
) -> None:
    done = train(job, **options, environ=environ)
    assert done.returncode == 0, done.stderr
    saved = {e.data["cursor"]: e for e in job.events(Kind.CHECKPOINT_SAVED)}
    told = {e.data["cursor"]: e for e in job.events(Kind.CHECKPOINT_COMMITTED)}
    assert set(saved) == set(told) == {*range(1, 13)}
    for cursor, event in saved.items():
        assert event.data["staging_ns"] < event.data["blocking_ns"]
        assert told[cursor].data["upload_ns"] < event.data["blocking_ns"]
    assert {e.data["phase"] for e in job.events(Kind.PHASE_BEGIN)} == {
        "checkpoint_restore",
        "first_batch",
        "checkpoint_save",
        "shutdown",
    }
    levers = [(e.data["lever"], e.data["outcome"]) for e in job.events(Kind.LEVER)]
    assert levers == [("background_saves", "off")] * len(environ)


TWO = """
import os, resource, time
import torch, torch.distributed as dist
from airflow_ett.trainer import Session, ranks

ranks._PULSE_NS = 0  # they agree at every step

class Fragile:
    broken = False
    def state_dict(self):
        if self.broken:
            raise RuntimeError("the fragile one is broken")
        return {"rank": dist.get_rank()}
    def load_state_dict(self, state):
        assert state == {"rank": dist.get_rank()}

def limit(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

with Session() as ett:
    dist.init_process_group("gloo")
    first = dist.get_rank() == 0
    model = torch.nn.Sequential(torch.nn.Linear(250, 1000), torch.nn.Linear(1000, 250))
    parallel = torch.nn.parallel.DistributedDataParallel(model)
    fragile = Fragile()
    saver = ett.checkpointer(
        model=parallel, fragile=fragile, every_s=0.0, on_failed_save=os.environ["ON_FAILED"]
    )
    start = saver.restore()
    numbers = torch.rand(2).tolist()
    for number in ett.track(range(1, 41), cursor=start):
        if first:
            fragile.broken = 10 <= number < 20
            limit(300_000 if 20 <= number < 30 else resource.RLIM_INFINITY)
        dist.barrier()
        ett.step(number)
        time.sleep(0.05)
    if start == 0:
        dist.barrier()
dist.destroy_process_group()
"""


def test_a_save_that_fails_on_the_first_rank_alone_hangs_nobody(job: Any) -> None:
    agent = job.agent(TWO, "--nproc", "2", ON_FAILED="warn")
    _, told = agent.communicate(timeout=120)
    assert agent.returncode == 0, told
    assert "rank 0: RuntimeError: the fragile one is broken. The training goes on." in told
    assert "rank 0: OSError: [Errno 27] File too large. The training goes on." in told
    assert [c.cursor for c in committed(job)][-1] == 40
    assert len(list(Path(job.context.checkpoints).glob("c*"))) == 2
    assert {"state-fragile.pt", "state-fragile-r1.pt", "random-r1.pt"} <= set(
        committed(job)[-1].files
    )
    job.next_submission()  # each rank finds its own state
    agent = job.agent(TWO, "--nproc", "2", ON_FAILED="warn")
    _, told = agent.communicate(timeout=120)
    assert agent.returncode == 0, told


def test_all_ranks_raise_together_if_that_is_wanted(job: Any) -> None:
    agent = job.agent(TWO, "--nproc", "2", ON_FAILED="raise")
    _, told = agent.communicate(timeout=120)
    assert agent.returncode == 1
    assert told.count("airflow_ett.errors.CheckpointError: job dag.train") == 2
    assert "the fragile one is broken" in told


@pytest.mark.parametrize("damaged", [False, True])
def test_room_is_made_only_beside_a_checkpoint_that_is_whole(
    job: Any, caplog: pytest.LogCaptureFixture, damaged: bool
) -> None:
    root = Path(job.context.checkpoints)
    place = read_place(job.environ())
    assert place is not None
    fence = Fence(place, root, Journal(None), print)
    assert fence.enter() is None
    committer = Committer(place, root, Journal(None), fence)
    for cursor in (1, 2):
        path = root / checkpoints.folder_name(cursor, AttemptId(1))
        path.mkdir()
        committer.commit(path, cursor, partial(_weights, path), anchor=False)
    if damaged:
        (path / "weights").write_bytes(b"v")
    half = root / checkpoints.folder_name(3, AttemptId(1))
    half.mkdir()
    with caplog.at_level(logging.WARNING):
        assert damaged is not committer.clean_up(half, OSError(errno.EDQUOT, "Disk quota exceeded"))
    assert not half.exists()
    assert [c.cursor for c in committed(job)] == ([1, 2] if damaged else [2])
    assert ("No room could be made" if damaged else "only the newest is kept") in caplog.text
    fence.close()


def _weights(path: Path) -> dict[str, FileDigest]:
    (path / "weights").write_bytes(b"w")
    return {"weights": digest_file(path / "weights")}


LOADS = """
import os
import torch, torch.distributed as dist
from airflow_ett.trainer import Session

class Picky:
    def state_dict(self):
        return {}
    def load_state_dict(self, state):
        if dist.get_rank() == 0:
            raise ValueError("the picky one refuses")

with Session() as ett:
    dist.init_process_group("gloo")
    saver = ett.checkpointer(model=torch.nn.Linear(2, 2), picky=Picky())
    start = saver.restore()
    for number in ett.track(range(1, 3), cursor=start):
        ett.step(number)
dist.destroy_process_group()
"""


def test_a_rank_that_cannot_load_its_state_ends_all_of_them_with_its_word(job: Any) -> None:
    agent = job.agent(LOADS, "--nproc", "2")
    _, told = agent.communicate(timeout=120)
    assert agent.returncode == 0, told
    job.next_submission()
    agent = job.agent(LOADS, "--nproc", "2")
    _, told = agent.communicate(timeout=60)
    assert agent.returncode == 1, told
    refused = "does not fit model, picky: rank 0: ValueError: the picky one refuses"
    assert told.count(refused) == 2
