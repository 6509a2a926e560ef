"""Two nodes that share nothing train through the API; its log tells the whole story."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_ett.events import AttemptId, Kind, decode_cursor

pytestmark = pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("fastapi", "uvicorn", "sqlalchemy", "requests"))),
    reason="needs the API server",
)

A1 = AttemptId(1)

TRAIN = """
import time
import torch, torch.distributed as dist
from airflow_ett.trainer import Session
with Session() as ett:
    dist.init_process_group("gloo")
    model = torch.nn.Linear(4, 2)
    saver = ett.checkpointer(model=model, every_s=1)
    start = saver.restore()
    for number in ett.track(range(1, 100_000), cursor=start):
        dist.all_reduce(torch.ones(1))
        time.sleep(0.01)
        ett.step(2 * number)
"""


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Any]:
    from airflow_ett.store import upgrade
    from tests.api.server import serving

    url = f"sqlite:///{tmp_path}/ett.db"
    upgrade(url)
    with serving(url) as served:
        yield served


def start(job: Any, api: Any, node: int, port: int, folder: Path) -> subprocess.Popen[str]:
    """Start the agent of one of two nodes, whose only folder of its own is ``folder``."""
    options = ["--nnodes", "2", "--node-rank", str(node), "--master-port", str(port)]
    token = api.token(job.context.key.id, "trainer")()
    agent: subprocess.Popen[str] = job.agent(
        TRAIN, *options, ETT_TOKEN=token, TMPDIR=str(folder / f"node{node}")
    )
    return agent


@pytest.mark.torch
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")
def test_nodes_without_shared_storage_train_and_fail_before_the_eyes_of_the_api(
    job: Any, api: Any, tmp_path: Path
) -> None:
    key = job.context.key
    job.context = replace(job.context, log=api.place(key.id), run_dir=key.path.as_posix())
    there = api.storage(key.id)
    there.write("launcher/submissions/0001.json", b"{}")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    first, second = (start(job, api, node, port, tmp_path) for node in (0, 1))
    until = time.monotonic() + 90
    while not any(e.kind == Kind.CHECKPOINT_COMMITTED for e in there.events("nodes")):
        assert first.poll() is None, first.communicate()
        assert time.monotonic() < until
        time.sleep(0.2)
    beats = {e.name: e.time_ns for e in there.entries("nodes")}
    second.kill()
    out, err = first.communicate(timeout=60)
    second.wait()
    assert first.returncode == 1, (out, err)
    assert "ett1." not in err
    events = list(there.events("nodes"))
    started = {(e.data["role"], e.data["node"]) for e in events if e.kind == Kind.PROCESS_STARTED}
    assert started == {(role, node) for role in ("agent", "trainer") for node in (0, 1)}
    (failure,) = [e for e in events if e.kind == Kind.FAILURE and "exit_code" in e.data]
    assert (failure.rank, failure.data["exit_code"]) == (0, 1)
    assert failure.data["type"] == "RuntimeError"
    ended = [e.writer for e in events if e.kind == Kind.PROCESS_ENDED and e.data["role"] == "agent"]
    assert [writer.split("-p")[0] for writer in ended] == ["agent-1.0.0-n0"]
    reply = json.loads(there.read(f"replies/{A1}-n0.json") or b"")
    assert reply["first_failure_rank"] == 0
    assert there.read(f"replies/{A1}-n1.json") is None
    cursor = decode_cursor(there.read("cursor") or b"")
    steps = sum(e.data["steps"] for e in events if e.kind == Kind.INTERVAL and e.rank == 0)
    assert cursor is not None
    assert 2 * steps == cursor.cursor > 0
    assert set(beats) == {f"heartbeat-1.0-n{node}" for node in (0, 1)}
    assert not (tmp_path / "run" / "nodes").exists()
    with contextlib.suppress(ValueError):
        second.communicate()


STEPS = """
import time
from airflow_ett.trainer import Session
with Session() as ett:
    for number in ett.track(range(1, 301)):
        with ett.phase("evaluation"):
            time.sleep(0.005)
        ett.step(number)
"""


def test_an_api_that_is_killed_and_comes_back_loses_no_event(job: Any, tmp_path: Path) -> None:
    from airflow_ett.store import upgrade
    from tests.api.server import server_process

    url = f"sqlite:///{tmp_path}/ett.db"
    upgrade(url)
    with server_process(url) as (server, api):
        job_id = job.context.key.id
        job.context = replace(job.context, log=api.place(job_id))
        agent = job.agent(STEPS, ETT_TOKEN=api.token(job_id, "trainer")())
        there = api.storage(job_id)
        until = time.monotonic() + 60
        while not list(there.events("nodes")):
            assert time.monotonic() < until
        server.kill()
        here = len(job.events())
        while len(job.events()) < here + 100:  # the training goes on meanwhile
            assert agent.poll() is None
            assert time.monotonic() < until
        server.start()
        _, err = agent.communicate(timeout=60)
        assert agent.returncode == 0, err
        arrived = [(event.writer, event.seq) for event in there.events("nodes")]
        assert sorted(arrived) == sorted((event.writer, event.seq) for event in job.events())
