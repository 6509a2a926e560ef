"""Trainers that save in the background all the time, killed at random moments.

``ETT_SOAK_KILLS`` of them (10), each a process of its own that resumes from what the last one left.
All are forked from one process that has imported torch. After each kill another process verifies
and loads the newest checkpoint. ``ETT_SOAK_SEED`` repeats the moments of an earlier run.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any

import pytest

from airflow_ett.events import Kind

pytestmark = pytest.mark.torch
pytest.importorskip("torch")

KILLS = int(os.environ.get("ETT_SOAK_KILLS", "10"))
LONGEST_S = 1.0

FORGE = """
import json, os, random, signal, sys, time
from dataclasses import replace
import torch, torch._dynamo, torch.distributed.checkpoint.state_dict
from airflow_ett import checkpoints
from airflow_ett.config import JOB_VARIABLE
from airflow_ett.events import JobContext
from airflow_ett.trainer import Session
from airflow_ett.trainer import checkpointer

FIRST = JobContext.decode(os.environ[JOB_VARIABLE])

def objects():
    model = torch.nn.ModuleList([torch.nn.Linear(256, 256) for _ in range(4)])  # 1 MB
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0, momentum=0.9)
    return model, optimizer

def launch(submission):
    context = replace(FIRST, submission=submission, epoch=submission)
    os.environ[JOB_VARIABLE] = context.encode()

def train(submission, ready):
    launch(submission)
    model, optimizer = objects()
    with Session() as ett:
        saver = ett.checkpointer(model=model, optimizer=optimizer, every_s=0.0)
        start = saver.restore()
        os.write(ready, b"r")
        for number in ett.track(range(1, 1_000_000), cursor=start):
            with torch.no_grad():
                for parameter in model.parameters():  # the weights tell the cursor
                    parameter.fill_(start + number)
                    parameter.grad = torch.zeros_like(parameter)
            optimizer.step()
            ett.step(number)
            time.sleep(0.001)

def verify(submission):
    launch(submission)
    newest = checkpoints.newest_verified(FIRST.checkpoints)
    model, optimizer = objects()
    with Session() as ett:
        cursor = ett.checkpointer(model=model, optimizer=optimizer, every_s=None).restore()
        assert cursor == newest.cursor > 0, (cursor, newest)
        for parameter in model.parameters():
            assert bool((parameter == cursor).all()), (cursor, parameter)
    return cursor

def forked(work, *arguments):
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work(*arguments)
            code = 0
        finally:
            sys.stdout.flush()
            os._exit(code)
    return child

def kill_one(submission, after_s):
    read, write = os.pipe()
    trainer = forked(train, submission, write)
    os.close(write)
    assert os.read(read, 1) == b"r"
    os.close(read)
    while not checkpoints.list_checkpoints(FIRST.checkpoints):
        time.sleep(0.01)  # the first one of all
    time.sleep(after_s)
    os.kill(trainer, signal.SIGKILL)
    assert os.WIFSIGNALED(os.waitpid(trainer, 0)[1])
    checker = forked(lambda: print(verify(submission + 1), flush=True))
    assert os.waitpid(checker, 0)[1] == 0

seed, kills, longest_s = json.loads(os.environ["SOAK"])
moments = random.Random(seed)
for number in range(kills):
    kill_one(1 + 2 * number, moments.uniform(0.0, longest_s))
"""


@pytest.mark.timeout(120 + 10 * KILLS)
def test_r24_a_verified_checkpoint_can_be_loaded_at_every_instant(job: Any) -> None:
    seed = int(os.environ.get("ETT_SOAK_SEED", time.time_ns() % 1_000_000))
    begun = time.monotonic()
    forge = job.start(str(job.script(FORGE)), SOAK=json.dumps([seed, KILLS, LONGEST_S]))
    out, err = forge.communicate()
    cursors = [int(line) for line in out.split()]
    assert forge.returncode == 0, f"seed {seed}, after {len(cursors)} kills: {err}"
    assert len(cursors) == KILLS
    assert cursors == sorted(cursors)
    assert len({*cursors}) > KILLS / 2  # most of them came to commit something
    saved = len({e.data["checkpoint"] for e in job.events(Kind.CHECKPOINT_COMMITTED)})
    each = (time.monotonic() - begun) / KILLS
    print(f"{KILLS} kills among {saved} checkpoints, seed {seed}: {each:.2f} s each")
