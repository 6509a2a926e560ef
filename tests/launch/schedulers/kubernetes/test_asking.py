"""One question for all, however long it takes, and whoever else has jobs there."""

from __future__ import annotations

import copy
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from airflow_ett.launch.gateway import Gateway
from airflow_ett.launch.schedulers.kubernetes import asking, create_scheduler
from tests.launch.schedulers.kubernetes import pods
from tests.launch.schedulers.kubernetes.server import Server


@pytest.fixture
def handles(gateway: Gateway) -> list[str]:
    """Eight apps that are watched."""
    prepared = gateway.prepare("utils.echo", ["--image", "trainer:1"], "kubernetes", {})
    handles = [gateway.submit(prepared, f"ett-{number}") for number in range(8)]
    for handle in handles:
        gateway.status(handle)
    return handles


def test_threads_that_wait_for_an_answer_are_served_by_it_however_long_it_takes(
    server: Server, handles: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that came while one was under way need one more, and no one more than that."""
    monkeypatch.setattr(asking, "FRESH_S", 0.02)
    server.before = lambda method, path: time.sleep(0.2)
    server.asked.clear()
    watchers = [
        Gateway(
            {"kubernetes": lambda s, **_: create_scheduler(s, kubeconfig=str(server.kubeconfig))}
        )
        for _ in handles
    ]
    begin = threading.Barrier(len(handles))

    def ask(watcher: Gateway, handle: str) -> str | None:
        begin.wait(10)
        return watcher.status(handle).state

    with ThreadPoolExecutor(len(handles)) as threads:
        assert set(threads.map(ask, watchers, handles)) == {"RUNNING"}
    assert len(server.asked) <= 4  # jobs and pods, twice


def test_an_app_whose_job_somebody_has_deleted_is_there_until_its_pods_have_ended(
    gateway: Gateway, server: Server, handles: list[str]
) -> None:
    """They are still saving: a training in its place would write beside them."""
    del server.cluster.jobs["default", "ett-0"]
    found = gateway.status(handles[0])
    assert (found.state, found.raw) == ("RUNNING", "Terminating")
    assert "it was deleted, and its pods have not ended yet" in found.message
    gateway.cancel(handles[0])
    pods.end(server.cluster.pods["default", "ett-0-echo-0-0"], 143)
    assert gateway.status(handles[0]).state is None
    assert gateway.status(handles[1]).state == "RUNNING"


def test_a_copy_that_somebody_made_of_a_job_is_not_ours_and_keeps_nobody_from_theirs(
    gateway: Gateway, server: Server, handles: list[str]
) -> None:
    job = copy.deepcopy(server.cluster.jobs["default", "ett-0"])
    job["metadata"]["name"] = "copy-to-try-something"
    server.cluster.jobs["default", "copy-to-try-something"] = job
    assert {gateway.status(handle).state for handle in handles} == {"RUNNING"}
