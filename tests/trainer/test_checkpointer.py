"""Checkpoints of real trainings: exact resumption, fallback, fencing, preemption, two ranks."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from airflow_ett import checkpoints
from airflow_ett.events import Kind, read_cursor

pytestmark = pytest.mark.torch
pytest.importorskip("torch")

TRAIN = """
import hashlib, json, os, random, signal, sys, time
from pathlib import Path
import torch
from airflow_ett.trainer import Session

class Counter:
    def __init__(self): self.seen = []
    def state_dict(self): return {"seen": list(self.seen)}
    def load_state_dict(self, state): self.seen = list(state["seen"])

torch.manual_seed(3)
random.seed(3)
every, kill_at, total, pause = json.loads(os.environ.get("PLAN", "[null, 0, 400, 0]"))
data = torch.randn(400, 8, generator=torch.Generator().manual_seed(1))
model = torch.nn.Sequential(
    torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Linear(16, 1)
)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 20, 0.5)
counter = Counter()
with Session() as ett:
    saver = ett.checkpointer(
        model=model, optimizer=optimizer, schedule=schedule, counter=counter, every_s=every
    )
    start = saver.restore()
    print("start", start, flush=True)
    loader = torch.utils.data.DataLoader(data[start:total], batch_size=4)  # draws a seed at iter()
    for number, batch in enumerate(ett.track(loader, cursor=start), start=1):
        optimizer.zero_grad()
        noise = random.random() * torch.rand(4, 8)
        model(batch + noise).square().mean().backward()
        optimizer.step()
        schedule.step()
        counter.seen.append(start + number * 4)
        ett.step(number * 4)
        time.sleep(pause)
        if start + number * 4 == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
weights = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
print("ids", counter.seen == list(range(4, int(total) + 1, 4)))
print("weights", hashlib.sha256(weights).hexdigest())
"""


def train(job: Any, *, every: float | None = 0.0, kill_at: int = 0, pause: float = 0.0) -> Any:
    done = job.run(TRAIN, PLAN=json.dumps([every, kill_at, 400, pause]))
    done.words = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    return done


def newest(job: Any) -> Any:
    return checkpoints.newest_committed(job.context.checkpoints)


def test_r27_a_killed_and_resumed_training_is_the_straight_one_bit_by_bit(
    job: Any, tmp_path: Path
) -> None:
    straight = train(job, every=None)
    assert straight.returncode == 0, straight.stderr
    anchors = [e.data for e in job.events(Kind.CHECKPOINT_COMMITTED)]
    assert [(a["cursor"], a["anchor"]) for a in anchors] == [(400, True)]

    job.context = _elsewhere(job, tmp_path / "other")
    killed = train(job, every=0.05, kill_at=148, pause=0.01)
    assert killed.returncode == -signal.SIGKILL
    reached = newest(job).cursor
    assert 0 < reached <= 148
    job.next_submission()
    resumed = train(job, every=None)
    assert resumed.returncode == 0, resumed.stderr
    assert resumed.words["start"] == str(reached)
    assert resumed.words["ids"] == straight.words["ids"] == "True"
    assert resumed.words["weights"] == straight.words["weights"]
    (told,) = job.events(Kind.RESUMED)
    assert (told.data["cursor"], told.data["hwm"]) == (reached, 148)
    record = read_cursor(job.run_dir.cursor)
    assert record is not None
    assert (record.cursor, record.hwm) == (400, 400)
    kept = checkpoints.list_checkpoints(job.context.checkpoints)
    assert len(kept) == 2
    for one in kept:
        checkpoints.verify(one)


def test_a_flipped_bit_falls_back_with_one_warning(job: Any) -> None:
    assert train(job, every=0.0, pause=0.02).returncode == 0
    older, newer = checkpoints.list_checkpoints(job.context.checkpoints)
    shard = next(p for p in newer.path.iterdir() if p.suffix == ".distcp")
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)
    job.next_submission()
    done = train(job, every=None)
    assert done.returncode == 0, done.stderr
    assert done.words["start"] == str(older.cursor)
    assert done.stderr.count("is damaged") == 1
    assert newer.path.exists() or newest(job).cursor == 400


def test_what_another_job_left_is_continued_whole_or_as_weights_only(
    job: Any, tmp_path: Path
) -> None:
    assert train(job, every=None).returncode == 0
    source = newest(job).uri
    job.context = _elsewhere(job, tmp_path / "inherits", inherit=source)
    assert train(job, every=None).words["start"] == "400"
    assert newest(job).cursor == 400  # an anchor of its own
    job.context = _elsewhere(job, tmp_path / "weights", init_from=source)
    done = train(job, every=None)
    assert done.words["start"] == "0", done.stderr
    assert not job.events(Kind.RESUMED)
    assert newest(job).cursor == 400


def test_a_checkpoint_that_is_not_there_is_an_error(job: Any, tmp_path: Path) -> None:
    job.context = _elsewhere(job, tmp_path / "gone", resume=str(tmp_path / "nowhere"))
    gone = train(job, every=None)
    assert gone.returncode == 1
    assert "no such folder" in gone.stderr
    assert job.events(Kind.FAILURE)[0].data["type"] == "CheckpointError"


def test_a_superseded_trainer_commits_nothing_and_stops(job: Any) -> None:
    intents = job.run_dir.launcher / "submissions"
    intents.mkdir(parents=True)
    (intents / "0002.json").write_text("{}")
    done = train(job, every=0.0, pause=0.05)
    assert done.returncode == 1
    assert "has replaced submission 1" in done.stderr
    assert newest(job) is None
    assert job.events(Kind.SESSION_ENDED)[0].data["cursor"] < 400


def test_sigterm_saves_the_last_step_and_ends_with_143(job: Any) -> None:
    process = job.start(str(job.script(TRAIN)), PLAN=json.dumps([None, 0, 400, 0.2]))
    process.stdout.readline()
    while (read_cursor(job.run_dir.cursor) or _Nothing).cursor < 8:
        pass
    process.terminate()
    _, err = process.communicate(timeout=60)
    assert process.returncode == 143, err
    record = read_cursor(job.run_dir.cursor)
    assert record is not None
    assert newest(job).cursor == record.cursor < 400
    (saved,) = job.events(Kind.CHECKPOINT_SAVED)
    assert 0 < saved.data["staging_ns"] < saved.data["blocking_ns"]
    (told,) = job.events(Kind.CHECKPOINT_COMMITTED)
    assert 0 < told.data["upload_ns"] < saved.data["blocking_ns"]  # it was waited for
    job.next_submission()
    assert train(job, every=None).words["start"] == str(record.cursor)


def test_a_save_that_fails_is_a_warning_and_the_last_one_an_error(job: Any) -> None:
    Path(job.context.checkpoints).write_text("in the way")
    done = train(job, every=0.0, pause=0.02)
    assert done.returncode == 1
    assert "could not be saved" in done.stderr
    assert job.events(Kind.SESSION_ENDED)[0].data == {"outcome": "error", "cursor": 400}


def test_two_ranks_save_and_stop_together(job: Any) -> None:
    code = """
    import os, time, sys
    import torch, torch.distributed as dist
    from airflow_ett.trainer import Session
    with Session() as ett:
        with ett.phase("process_group_init"):
            dist.init_process_group("gloo")
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 1)
        parallel = torch.nn.parallel.DistributedDataParallel(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        saver = ett.checkpointer(model=parallel, optimizer=optimizer, every_s=0.3)
        start = saver.restore()
        if dist.get_rank() == 0:
            print("start", start, flush=True)
        for number in ett.track(range(1, (5000 if start == 0 else 20) + 1), cursor=start):
            optimizer.zero_grad()
            parallel(torch.ones(2, 4) * dist.get_rank()).mean().backward()
            optimizer.step()
            ett.step(number * 8)
            time.sleep(0.01)
        total = torch.tensor([1.0])
        dist.all_reduce(total)
        assert total.item() == 2.0
        assert ett.preempted == (start == 0)
        print("after", flush=True)
    dist.destroy_process_group()
    """
    agent = job.agent(code, "--nproc", "2")
    assert agent.stdout.readline() == "start 0\n"
    while not checkpoints.list_checkpoints(job.context.checkpoints):
        assert agent.poll() is None
    agent.terminate()
    out, err = agent.communicate(timeout=90)
    assert agent.returncode == 143, err
    assert out.count("after") == 2
    stopped = newest(job)
    assert {"__0_0.distcp"} <= set(stopped.files)
    assert stopped.cursor == read_cursor(job.run_dir.cursor).cursor  # type: ignore[union-attr]
    job.next_submission()
    agent = job.agent(code, "--nproc", "2")
    out, err = agent.communicate(timeout=90)
    assert agent.returncode == 0, err
    assert f"start {stopped.cursor}" in out
    assert newest(job).cursor == stopped.cursor + 160


LOADER = """
import os, signal
import torch
from airflow_ett.trainer import Session

class Loader:  # as torchdata's StatefulDataLoader: in the middle of an epoch it goes on there
    def __init__(self):
        self.epoch, self.given, self.restored = -1, 0, False
    def __iter__(self):
        if self.restored:
            self.restored = False
        else:
            self.epoch, self.given = self.epoch + 1, 0
        generator = torch.Generator().manual_seed(self.epoch)
        order = torch.randperm(12, generator=generator).tolist()
        while self.given < 12:
            self.given += 1
            yield order[self.given - 1]
    def state_dict(self):
        return {"epoch": self.epoch, "given": self.given}
    def load_state_dict(self, state):
        self.epoch, self.given, self.restored = state["epoch"], state["given"], True

kill_at = int(os.environ["KILL_AT"])
model, loader = torch.nn.Linear(1, 1), Loader()
with Session() as ett:
    saver = ett.checkpointer(model=model, loader=loader, every_s=0, background=False)
    cursor = saver.restore()
    while cursor < 36:
        number = 0
        for number, sample in enumerate(ett.track(loader, cursor=cursor), start=1):
            print(loader.epoch, sample, flush=True)
            ett.step(number)
            if cursor + number == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
        cursor += number
"""


def test_r27_a_stateful_loader_goes_on_in_the_middle_of_its_epoch(job: Any, tmp_path: Path) -> None:
    straight = job.run(LOADER, KILL_AT="0")
    assert straight.returncode == 0, straight.stderr
    job.context = _elsewhere(job, tmp_path / "other")
    seen = ""
    for kill_at in (17, 30, 0):
        done = job.run(LOADER, KILL_AT=str(kill_at))
        assert done.returncode == (-signal.SIGKILL if kill_at else 0), done.stderr
        seen += done.stdout
        job.next_submission()
    assert seen == straight.stdout
    assert len(seen.splitlines()) == 36


class _Nothing:
    cursor = 0


def _elsewhere(job: Any, folder: Path, **changes: Any) -> Any:
    """Return the context of a fresh job in another folder."""
    fields = {name: getattr(job.context, name) for name in job.context.__slots__}
    fields |= {"run_dir": str(folder), "checkpoints": str(folder / "checkpoints"), "submission": 1}
    return type(job.context)(**{**fields, "resume": "auto", "inherit": None, **changes})
