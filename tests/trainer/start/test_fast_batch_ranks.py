"""Several ranks run the fast batch together or not at all; outside a job nobody does."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from airflow_ett.events import Kind
from airflow_ett.trainer import Session

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

TRAIN = """
import hashlib, logging, os
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from airflow_ett.trainer import Session
from airflow_ett.trainer.start import BatchSpec

logging.basicConfig(level="INFO", format="%(message)s")
dist.init_process_group("gloo")
rank = dist.get_rank()
known, wrong = BatchSpec.of(torch.ones(4, 6)), BatchSpec.of(torch.ones(4, 5))

def train(name, batch):
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout())
    model = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters())
    batches = torch.rand(2, 3, 4, 6, generator=torch.Generator().manual_seed(2))[rank]
    logging.warning("%s", name)
    with Session() as ett:
        if batch != "none":
            ett.fast_batch(lambda batch: model(batch).square().mean(), batch)
        for step, batch in enumerate(ett.track(batches), start=1):
            model(batch).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            ett.step(8 * step)
    weights = b"".join(t.detach().numpy().tobytes() for t in model.state_dict().values())
    print(name, hashlib.sha256(weights).hexdigest(), flush=True)

train("without", "none")
train("both", known)
train("one knows", known if rank else None)
train("one cannot", known if rank else wrong)
dist.destroy_process_group()
"""


def test_ranks_run_it_together_or_not_at_all(job: Any) -> None:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = str(found.getsockname()[1])
    script = str(job.script(TRAIN))
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2"}
    ranks = [job.start(script, RANK=r, LOCAL_RANK=r, **common) for r in "01"]
    told = [rank.communicate(timeout=120) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], told[0][1] + told[1][1]
    for out, _ in told:
        digests = [line.split()[-1] for line in out.splitlines()]
        assert len(digests) == 4
        assert len(set(digests)) == 1
    levers = [_levers(err) for _, err in told]
    unknown = "what a batch is like is not known from an earlier attempt"
    for rank, attempts in enumerate(levers):
        assert attempts["without"] == []
        assert attempts["both"] == ["fast_batch: used"]
        outcome = f"unable (rank 0: {unknown})" if rank else f"missed ({unknown})"
        assert attempts["one knows"] == [f"fast_batch: {outcome}"]
        (cannot,) = attempts["one cannot"]
        assert cannot.startswith("fast_batch: unable (" + "rank 0: " * rank + "RuntimeError: mat1")


def _levers(err: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in err.splitlines():
        if line in ("without", "both", "one knows", "one cannot"):
            found[line] = []
        elif line.startswith("fast_batch"):
            found[list(found)[-1]].append(line)
    return found


def test_outside_a_job_nothing_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ETT_JOB", raising=False)
    with Session() as ett:
        ett.fast_batch(lambda batch: pytest.fail("it is run"), lambda: torch.ones(1))
        assert list(ett.track([1, 2])) == [1, 2]


def test_sigterm_meanwhile_ends_the_training_before_its_first_step(job: Any) -> None:
    done = job.run("""
        import os, signal, torch
        from airflow_ett.trainer import Session
        weight = torch.ones(2, requires_grad=True)
        def run(batch):
            os.kill(os.getpid(), signal.SIGTERM)
            return (weight * batch).sum()
        with Session() as ett:
            ett.fast_batch(run, lambda: torch.ones(2))
            for batch in ett.track([torch.ones(2)] * 3):
                print("a step")
                ett.step(1)
    """)
    assert done.returncode == 143, done.stderr
    assert "a step" not in done.stdout
    assert job.events(Kind.SESSION_ENDED)[0].data["outcome"] == "preempted"


def test_what_the_fast_batch_left_to_compile_is_told(job: Any) -> None:
    done = job.run("""
        import torch
        from airflow_ett.trainer import Session
        weight = torch.ones(2, requires_grad=True)
        more = torch.compile(lambda x: x * 2, backend="eager")
        with Session() as ett:
            ett.fast_batch(lambda batch: (weight * batch).sum(), lambda: torch.ones(2))
            for step, batch in enumerate(ett.track([torch.ones(2)] * 3), start=1):
                with ett.phase("evaluation"):
                    pass
                more(batch)
                ett.step(step)
    """)
    assert done.returncode == 0, done.stderr
    (told,) = job.events(Kind.LEVER)
    assert told.data["outcome"] == "used"
    assert told.data["reason"] == "the first real step compiled what it does not run: 0/0"
