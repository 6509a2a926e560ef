"""MLflow's model registry, against a real MLflow server."""

from __future__ import annotations

import http.server
import itertools
import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from airflow_ett.errors import ConfigurationError, PublishError
from airflow_ett.publish.registries.mlflow import ALIAS, MlflowRegistry
from tests.publish.mlflow_server import mlflow_server
from tests.publish.staged import fill, published

SECRET = "s3cret-of-the-registry"
DAY_MS = 24 * 3600 * 1000
_numbers = itertools.count()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One server for the module: a test has models of its own."""
    pytest.importorskip("mlflow.server", reason="pip install mlflow")
    with mlflow_server(tmp_path_factory.mktemp("mlflow")) as address:
        yield address


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing of the environment signs in, stands between, or waits."""
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    for name in ("TRACKING_URI", "TRACKING_TOKEN", "TRACKING_USERNAME", "TRACKING_PASSWORD"):
        monkeypatch.delenv(f"MLFLOW_{name}", raising=False)
    monkeypatch.delenv("ETT_REGISTRY_CREDENTIALS", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")


@pytest.fixture
def name() -> str:
    """A model that no other test has."""
    return f"toy-{next(_numbers)}"


def client(server: str) -> Any:
    """MLflow's own client, as a reader has it."""
    from mlflow import MlflowClient

    return MlflowClient(server)


def runs(server: str, name: str) -> list[Any]:
    """The runs that hold versions of a model."""
    reader = client(server)
    experiment = reader.get_experiment_by_name("airflow-ett publish").experiment_id
    found: list[Any] = reader.search_runs([experiment], f"tags.`ett.model` = '{name}'")
    return found


def test_a_version_is_whole_and_loads_as_mlflow_loads(
    server: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = MlflowRegistry(server, name)
    assert registry.find("64-ab+1") is None
    snapshot = published(registry, "64-ab+1", saved_ns=7)
    assert snapshot.uri == f"models:/{name}/1"
    assert registry.find("64-ab") is None
    assert registry.point_latest(snapshot)

    from mlflow import artifacts

    monkeypatch.setenv("MLFLOW_TRACKING_URI", server)
    folder = artifacts.download_artifacts(f"models:/{name}@{ALIAS}", dst_path=str(tmp_path))
    assert Path(folder, "model.safetensors").read_bytes() == b"weights"
    assert json.loads(Path(folder, "manifest.json").read_bytes()) == snapshot.manifest
    tags = client(server).get_model_version(name, "1").tags
    assert tags["ett.version"] == "64-ab+1"
    assert (tags["ett.saved_ns"], tags["ett.cursor"]) == ("7", "640")
    assert [run.info.status for run in runs(server, name)] == ["FINISHED"]


def test_the_environment_may_name_the_server(
    server: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigurationError, match="needs MLFLOW_TRACKING_URI"):
        MlflowRegistry("", name)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server)
    published(MlflowRegistry("", name), "v1")
    assert MlflowRegistry(server, name).find("v1") is not None


@pytest.mark.parametrize("uri", ["https://ann:pw@h.example", "https://pw@h.example", "ftp://h/x"])
def test_a_wrong_address_is_refused(uri: str) -> None:
    with pytest.raises(ConfigurationError, match="registry: ") as caught:
        MlflowRegistry(uri, "toy")
    assert "pw" not in str(caught.value)


def test_latest_is_never_turned_back_but_by_force(server: str, name: str) -> None:
    registry, reader = MlflowRegistry(server, name), client(server)
    new, old = published(registry, "new", saved_ns=20), published(registry, "old", saved_ns=10)

    def latest() -> str:
        return str(reader.get_model_version_by_alias(name, ALIAS).tags["ett.version"])

    assert registry.point_latest(new)
    assert registry.point_latest(new)
    assert not registry.point_latest(old)
    assert latest() == "new"
    assert registry.point_latest(old, force=True)
    assert latest() == "old"


def test_what_another_does_in_the_same_moment_is_found(
    server: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry, other = MlflowRegistry(server, name), MlflowRegistry(server, name)
    new, old = published(registry, "new", saved_ns=20), published(registry, "old", saved_ns=10)
    move = registry._client.set_registered_model_alias

    def both_move(*arguments: str) -> None:
        monkeypatch.undo()
        move(*arguments)
        other._client.set_registered_model_alias(name, ALIAS, "2")

    monkeypatch.setattr(registry._client, "set_registered_model_alias", both_move)
    assert registry.point_latest(new)
    assert not other.point_latest(old)


def test_of_two_publishers_the_lower_number_wins(server: str, name: str) -> None:
    meeting = threading.Barrier(2)
    won: list[bool] = []

    def publish_one() -> None:
        registry = MlflowRegistry(server, name)
        upload = registry._upload

        def upload_then_meet(staged: Path, version: str) -> str:
            run = upload(staged, version)
            meeting.wait()
            return run

        registry._upload = upload_then_meet  # type: ignore[method-assign]
        with registry.staging("v1") as staged:
            fill(staged, "v1")
            won.append(registry.reveal(staged, "v1"))

    threads = [threading.Thread(target=publish_one) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(won) == [False, True]
    (version,) = client(server).search_model_versions(f"name = '{name}'")
    assert version.version == "1"
    assert [run.info.run_id for run in runs(server, name)] == [version.run_id]


def test_what_a_loser_that_died_has_left_changes_nothing(server: str, name: str) -> None:
    registry = MlflowRegistry(server, name)
    first = published(registry, "v1")
    run = runs(server, name)[0].info.run_id
    twin = client(server).create_model_version(
        name, f"runs:/{run}/model", run, tags={"ett.version": "v1"}
    )
    assert twin.version == "2"
    found = registry.find("v1")
    assert found is not None
    assert found.uri == first.uri


def test_an_answer_that_got_lost_makes_no_second_version(server: str, name: str) -> None:
    registry = MlflowRegistry(server, name)
    register = registry._register

    def twice(*arguments: Any) -> None:
        register(*arguments)
        register(*arguments)

    registry._register = twice  # type: ignore[method-assign]
    published(registry, "v1")
    assert len(client(server).search_model_versions(f"name = '{name}'")) == 1


def test_an_upload_that_fails_leaves_nothing(
    server: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = MlflowRegistry(server, name)

    def half(run: str, folder: str, path: str) -> None:
        registry._client.log_artifact(run, f"{folder}/manifest.json", path)
        raise ConnectionError("the line is cut")

    monkeypatch.setattr(registry._client, "log_artifacts", half)
    with registry.staging("v1") as staged:
        fill(staged, "v1")
        with pytest.raises(PublishError, match=f"model {name}: ConnectionError: the line is cut"):
            registry.reveal(staged, "v1")
    assert registry.find("v1") is None
    assert runs(server, name) == []


def test_the_sweep_takes_what_the_dead_left_a_day_ago(server: str, name: str) -> None:
    registry, writer = MlflowRegistry(server, name), client(server)
    published(registry, "v1")
    kept = runs(server, name)[0]
    writer.update_run(kept.info.run_id, status="RUNNING")  # its publisher died right after
    two_days_ago = int(time.time() * 1000) - 2 * DAY_MS
    place, tags = kept.info.experiment_id, {"ett.model": name}
    writer.create_run(place, start_time=two_days_ago, tags=tags)
    fresh = writer.create_run(place, tags=tags)
    old = writer.create_run(place, start_time=two_days_ago, tags=tags)
    writer.create_model_version(name, f"runs:/{old.info.run_id}/model", old.info.run_id)
    registry.sweep()
    left = {run.info.run_id for run in runs(server, name)}
    assert left == {kept.info.run_id, fresh.info.run_id, old.info.run_id}


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("model.safetensors", b"short", "model.safetensors has 5 bytes instead of 7"),
        ("manifest.json", b"{}", "it is no manifest"),
    ],
)
def test_a_damaged_version_is_named(
    server: str, name: str, tmp_path: Path, file: str, content: bytes, message: str
) -> None:
    registry = MlflowRegistry(server, name)
    published(registry, "v1")
    (tmp_path / file).write_bytes(content)
    run = runs(server, name)[0].info.run_id
    client(server).log_artifact(run, str(tmp_path / file), "model")
    with pytest.raises(PublishError, match=rf"models:/{name}/1 is damaged: {message}.*delete it"):
        registry.find("v1")


class Broken(http.server.BaseHTTPRequestHandler):
    """Answers all requests alike."""

    status, body = 500, b"out of order"
    authorizations: ClassVar[list[str | None]]

    def do_GET(self) -> None:
        """Answer, and note how the client signed in."""
        self.authorizations.append(self.headers["Authorization"])
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    do_POST = do_PUT = do_GET

    def log_message(self, *arguments: object) -> None:
        """Say nothing."""


@pytest.fixture
def broken() -> Iterator[tuple[str, type[Broken]]]:
    """The address of a server that is no MLflow, and what it answers."""
    answers = type("Answers", (Broken,), {"authorizations": []})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), answers) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", answers
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (500, "out of order", "check the tracking URI, or publish again once it answers"),
        (401, f"not you: {SECRET}", "check the login or token"),
        (403, '{"error_code": "PERMISSION_DENIED", "message": "no"}', "check the login or token"),
        (200, "<html>hello</html>", "check the tracking URI"),
    ],
)
@pytest.mark.parametrize("act", ["find", "sweep", "reveal"])
def test_what_a_broken_server_answers_is_told(
    broken: Any, monkeypatch: pytest.MonkeyPatch, status: int, body: str, message: str, act: str
) -> None:
    address, answers = broken
    answers.status, answers.body = status, body.encode()
    monkeypatch.setenv("ETT_REGISTRY_CREDENTIALS", json.dumps({"token": SECRET}))
    registry = MlflowRegistry(address, "toy")
    with registry.staging("v1") as staged:
        fill(staged, "v1")
        actions = {"find": ("v1",), "sweep": (), "reveal": (staged, "v1")}
        with pytest.raises(PublishError, match=message) as caught:
            getattr(registry, act)(*actions[act])
    assert str(caught.value).startswith(f"MLflow at {address}, model toy: ")
    assert "\n" not in str(caught.value)
    assert SECRET not in str(caught.value)
    assert set(answers.authorizations) == {f"Bearer {SECRET}"}


def test_a_login_in_the_environments_address_is_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://ann:s3cr3t@127.0.0.1:1")
    with pytest.raises(PublishError, match=r"MLflow at http://\*\*\*@127\.0\.0\.1:1, ") as caught:
        MlflowRegistry("", "toy").find("v1")
    assert "s3cr3t" not in str(caught.value)


def test_an_environment_that_mlflow_cannot_use_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "junk://ann:s3cr3t@h")
    with pytest.raises(ConfigurationError, match="registry: MLflow cannot use") as caught:
        MlflowRegistry("", "toy")
    assert "s3cr3t" not in str(caught.value)


def test_nobody_there_is_told(broken: Any) -> None:
    registry = MlflowRegistry("http://127.0.0.1:9", "toy")
    with pytest.raises(PublishError, match=r"Connection refused.*check the tracking URI"):
        registry.find("v1")


def test_a_login_is_in_the_environment_for_the_requests_alone(
    broken: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, answers = broken
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "another")
    credentials = json.dumps({"login": "ann", "password": "ö"})
    monkeypatch.setenv("ETT_REGISTRY_CREDENTIALS", credentials)
    registry = MlflowRegistry(address, "toy")
    before = dict(os.environ)
    with pytest.raises(PublishError):
        registry.find("v1")
    assert answers.authorizations == ["Basic YW5uOsO2"]
    assert dict(os.environ) == before


@pytest.mark.torch
def test_the_command_publishes_into_mlflow_once(site: Any, server: str) -> None:
    checkpoint = site.save()
    first, again = (
        site.run(checkpoint, registry=f"mlflow+{server}", name="ranker") for _ in range(2)
    )
    assert (first.returncode, again.returncode) == (0, 0), first.stderr + again.stderr
    results = [json.loads(done.stdout.splitlines()[-1]) for done in (first, again)]
    assert [result["existed"] for result in results] == [False, True]
    assert results[0]["uri"] == results[1]["uri"] == "models:/ranker/1"
    latest = client(server).get_model_version_by_alias("ranker", ALIAS)
    assert latest.tags["ett.digest"] == results[0]["digest"]
    assert len(client(server).search_model_versions("name = 'ranker'")) == 1
