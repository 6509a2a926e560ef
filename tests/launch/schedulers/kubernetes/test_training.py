"""A real training of two nodes, whose containers are processes here and whose cluster is not."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from airflow_ett.launch.gateway import Gateway
from airflow_ett.launch.opening import open_job
from airflow_ett.launch.request import Request
from airflow_ett.launch.root import Root
from airflow_ett.launch.watcher import Watcher
from airflow_ett.metric import measure
from tests.launch.conftest import KEY
from tests.launch.schedulers.kubernetes import pods
from tests.launch.schedulers.kubernetes.kubelet import Kubelet
from tests.launch.schedulers.kubernetes.server import Server

LOOP = """
import time
import torch.distributed as dist
from airflow_ett.trainer import Session

dist.init_process_group("gloo")
with Session() as ett:
    start = ett.checkpointer(every_s=0.3).restore()
    print("from", start, flush=True)
    for number, _ in enumerate(ett.track(range(start, 60), cursor=start), start=1):
        time.sleep(0.05)
        print("step", number, flush=True)
        ett.step(number)
"""


@pytest.fixture
def kubelet(server: Server, tmp_path: Path) -> Iterator[Kubelet]:
    found = Kubelet(server.cluster, tmp_path)
    yield found
    found.close()


def test_volcano_preempts_a_training_which_saves_and_resumes_as_another_attempt(
    server: Server, gateway: Gateway, kubelet: Kubelet, tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    script = tmp_path / "train.py"
    script.write_text(LOOP)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    arguments = ["--image", "trainer:1", "--script", str(script), "-j", "2x1"]
    request = Request(
        "train",
        [*arguments, "--rdzv_port", str(port), "--grace_s", "20"],
        "kubernetes",
        cfg={"requeue": True},
        env={"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
    )
    job = open_job(Root(str(tmp_path / "runs")), KEY, checkpoint_root="", try_number=1, max_tries=1)
    claim = job.log.claim(try_number=1, max_tries=1, mode="task")
    watcher = Watcher(job, claim, request, gateway)
    watcher.begin()
    ((namespace, app),) = server.cluster.jobs
    seen = ""

    def watch(until: Callable[[], bool]) -> object:
        nonlocal seen
        limit = time.monotonic() + 90
        while not until():
            assert time.monotonic() < limit, seen
            outcome = watcher.poll()
            seen += watcher.read_log()
            if outcome is not None:
                return outcome
            time.sleep(0.1)
        return None

    assert watch(lambda: "step 30" in seen) is None, seen
    server.cluster.take(namespace, app, pods.preempted_by_volcano, replica=1)
    outcome = watch(lambda: False)
    assert getattr(outcome, "cause", "unknown") is None, seen
    events = [*job.log.launcher_events(), *job.log.submission_events(1)]
    first, second = measure(events).attempts
    assert (first.id[:2], second.id[:2]) == ((1, 0), (1, 1))
    assert (first.cause, second.layer) == ("preempted", "scheduler")
    assert second.cursor_from is not None
    assert second.cursor_from >= 30
    assert f"from {second.cursor_from}\n" in seen
    assert len([event for event in events if event.kind == "submitted"]) == 1
