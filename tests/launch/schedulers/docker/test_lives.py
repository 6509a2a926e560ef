"""The life of apps on an Engine: submitted whole or not at all, read, cancelled, judged."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from docker.api.client import APIClient
from docker.client import DockerClient
from requests.exceptions import ReadTimeout

from airflow_ett.errors import LaunchError
from airflow_ett.events import AttemptId
from airflow_ett.launch.gateway import Gateway, Prepared
from airflow_ett.launch.request import Request
from airflow_ett.launch.schedulers.docker import Docker, scheduler
from tests.launch.conftest import Bench
from tests.launch.schedulers.docker.engine import Engine, serving

SCRIPT = ["--script", "t.py", "--image", "ghcr.io/acme/train:1"]


@pytest.fixture
def engine() -> Engine:
    return Engine()


@pytest.fixture
def address(engine: Engine) -> Iterator[str]:
    with serving(engine) as address:
        yield address


@pytest.fixture
def gateway(address: str) -> Iterator[Gateway]:
    client = DockerClient(address)
    backend = Docker("test", client)
    yield Gateway({"local_docker": lambda session, **_: backend})
    client.close()


def training(gateway: Gateway, *options: str) -> Prepared:
    return gateway.prepare("train", [*SCRIPT, *options], "local_docker")


def test_a_submit_that_was_broken_off_is_gone_on_with(gateway: Gateway, engine: Engine) -> None:
    """The submitter had made the first container of two, and died."""
    gateway.submit(training(gateway, "-j", "2x1"), "app")
    first, second = engine.of("app")
    first.status = "created"
    del engine.containers[second.id]
    assert gateway.find("app", "local_docker") is None
    handle = gateway.submit(training(gateway, "-j", "2x1"), "app")
    assert gateway.status(handle).state == "RUNNING"
    assert [one.name for one in engine.of("app")] == ["app-trainer-0", "app-trainer-1"]
    assert engine.of("app")[0].id == first.id


def test_who_submit_the_same_name_at_once_make_one_app(gateway: Gateway, engine: Engine) -> None:
    prepared = training(gateway, "-j", "2x1")
    with ThreadPoolExecutor(4) as threads:
        handles = set(threads.map(lambda _: gateway.submit(prepared, "app"), range(4)))
    assert handles == {"local_docker://ett/app"}
    assert sorted(one.name for one in engine.of("app")) == ["app-trainer-0", "app-trainer-1"]
    assert gateway.status("local_docker://ett/app").state == "RUNNING"


@pytest.mark.parametrize("cancelled", [False, True])
def test_who_fetches_an_image_while_another_submits_and_ends_the_app_starts_none_again(
    gateway: Gateway, engine: Engine, *, cancelled: bool
) -> None:
    """A cancel gives the containers other names, so that the app's own are free."""
    prepared = training(gateway)

    def overtaken() -> None:
        engine.pulling = lambda: None
        handle = gateway.submit(prepared, "app")
        if cancelled:
            gateway.cancel(handle)
        else:
            engine.of("app")[0].end(0)

    engine.pulling = overtaken
    handle = gateway.submit(prepared, "app")
    assert gateway.status(handle).state == ("CANCELLED" if cancelled else "SUCCEEDED")
    assert len(engine.of("app")) == 1


def test_a_container_that_has_ended_is_not_started_again(gateway: Gateway, engine: Engine) -> None:
    """The submitter had started the first container of two, and died."""
    gateway.submit(training(gateway, "-j", "2x1"), "app")
    first, second = engine.of("app")
    first.end(1)
    second.status = "created"
    handle = gateway.submit(training(gateway, "-j", "2x1"), "app")
    assert [replica.state for replica in gateway.status(handle).replicas] == ["FAILED", "RUNNING"]


def test_of_an_app_that_the_engine_cannot_start_nothing_is_left(
    gateway: Gateway, engine: Engine
) -> None:
    engine.refuses_start = "could not select device driver with capabilities: [[compute utility]]"
    with pytest.raises(LaunchError, match="could not select device driver"):
        gateway.submit(training(gateway, "-j", "2x1", "--gpu", "1"), "app")
    assert engine.of("app") == []


def test_of_an_app_whose_start_was_not_answered_nothing_is_left(
    gateway: Gateway, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two containers the first may run by then."""
    start = APIClient.start

    def lost(api: APIClient, name: str) -> None:
        start(api, name)
        raise ReadTimeout("timed out")

    monkeypatch.setattr(APIClient, "start", lost)
    with pytest.raises(LaunchError, match="timed out"):
        gateway.submit(training(gateway, "-j", "2x1"), "app")
    assert engine.of("app") == []


def test_an_image_that_cannot_be_had_is_named_and_one_that_is_there_will_do(
    gateway: Gateway, engine: Engine
) -> None:
    engine.images.clear()
    with pytest.raises(LaunchError, match=r"image ghcr\.io/acme/train:1 is not there"):
        gateway.submit(training(gateway), "app")
    engine.local.add("ghcr.io/acme/train:1")
    assert gateway.status(gateway.submit(training(gateway), "app")).state == "RUNNING"


def test_an_app_of_several_containers_is_listed_once(gateway: Gateway, engine: Engine) -> None:
    gateway.submit(training(gateway, "-j", "2x1"), "app")
    engine.of("app")[0].end(0)
    (listed,) = gateway._known("local_docker").list()
    assert (listed.app_id, listed.name, listed.state.name) == ("app", "app", "RUNNING")


def test_containers_that_were_removed_are_an_app_that_is_not_known(
    gateway: Gateway, engine: Engine
) -> None:
    handle = gateway.submit(training(gateway), "app")
    engine.containers.clear()
    assert gateway.status(handle).state is None


def test_a_cancel_is_told_to_all_containers_and_waits_for_none(
    gateway: Gateway, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler, "_TOLD_S", 0.1)
    handle = gateway.submit(training(gateway, "-j", "2x1", "--grace_s", "0"), "app")
    assert [one.body["StopTimeout"] for one in engine.of("app")] == [5, 5]
    for one in engine.of("app"):
        one.body = {**one.body, "StopTimeout": 1}
    engine.deaf = True
    began = time.monotonic()
    gateway.cancel(handle)
    took_s = time.monotonic() - began
    assert gateway.status(handle).state == "RUNNING"
    assert took_s < 1
    while not (status := gateway.status(handle)).terminal:
        assert time.monotonic() - began < 10
        time.sleep(0.05)
    assert status.state == "CANCELLED"
    assert [replica.exit_code for replica in status.replicas] == [137, 137]


def test_each_nodes_output_is_read_on_whatever_happens_to_its_name(
    gateway: Gateway, engine: Engine
) -> None:
    handle = gateway.submit(training(gateway, "-j", "2x1"), "app")
    for number, one in enumerate(engine.of("app")):
        one.say(f"node {number}\n".encode())
    text, offset = gateway.read_log(handle, 1)
    assert text == "node 1\n"
    engine.of("app")[1].say(b"bye")
    gateway.cancel(handle)
    assert gateway.status(handle).state == "CANCELLED"
    assert gateway.read_log(handle, 1, offset)[0] == "bye"
    assert gateway.last_lines(handle, 1) == ["node 1", "bye"]
    assert gateway.read_log(handle, 0)[0] == "node 0\n"
    place = gateway.log_location(handle, 1)
    assert place is not None
    assert place.endswith("/containers/app-trainer-1.cancelled/logs?stdout=1&stderr=1")


def test_much_output_comes_in_pieces_and_all_of_it(gateway: Gateway, engine: Engine) -> None:
    handle = gateway.submit(training(gateway), "app")
    (one,) = engine.of("app")
    lines = [f"{number:07d} {'x' * 200}\n" for number in range(12_000)]
    one.say("".join(lines).encode())
    found, offset, pieces = "", 0, 0
    while piece := gateway.read_log(handle, 0, offset):
        if not piece[0]:
            break
        found, offset, pieces = found + piece[0], piece[1], pieces + 1
    assert found == "".join(lines)
    assert pieces == 3


def test_an_engine_that_is_not_there_is_an_error_that_names_the_app(tmp_path: Path) -> None:
    away = Docker("test", DockerClient("http://127.0.0.1:9", version="1.47"))
    gateway = Gateway({"local_docker": lambda session, **_: away})
    with pytest.raises(LaunchError, match=r"local_docker://ett/app: ConnectionError"):
        gateway.status("local_docker://ett/app")


@pytest.mark.parametrize(
    ("code", "oom_killed", "cause"),
    [(137, True, "out_of_memory"), (3, False, "application"), (143, False, "preempted")],
)
def test_a_job_is_told_why_its_container_ended(
    bench: Bench, gateway: Gateway, engine: Engine, code: int, oom_killed: bool, cause: str
) -> None:
    watched: Any = bench
    watched.gateway = gateway
    watched.request = Request("train", SCRIPT, "local_docker")
    watcher = watched.watch(max_tries=1)
    (submitted,) = bench.events("submitted")
    (one,) = engine.of(submitted.data["app"])
    one.end(code, oom_killed=oom_killed)
    bench.tick(20)
    watcher.poll()
    (ended,) = bench.events("attempt_ended")
    assert (ended.attempt, ended.data["cause"]) == (AttemptId(1), cause)
    assert ended.data["evidence"]["exit_code"] == code
    states = [event.data for event in bench.events("scheduler_state")]
    assert states[-1]["hosts"] == [f"{submitted.data['app']}-trainer-0"]
