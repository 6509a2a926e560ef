"""The registry that is an HTTP service, against a real one on loopback."""

from __future__ import annotations

import json
import os
import signal
import threading
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from airflow_ett.errors import ConfigurationError, PublishError
from airflow_ett.publish.registries.client import TRIES
from airflow_ett.publish.registries.http import HttpRegistry
from tests.publish.service import Fault, Service, serving
from tests.publish.staged import fill, published

MODEL, BLOBS = "/registry/models/toy", "/registry/blobs"
VERSIONS, LATEST = f"{MODEL}/versions", f"{MODEL}/latest"
SECRET = "s3cret-of-the-registry"
SPY = """
import os, pathlib
from ett_toy import build, example_batch
told = str("ETT_REGISTRY_CREDENTIALS" in os.environ)
pathlib.Path(__file__).with_suffix(".told").write_text(told)
"""


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    """An empty service; no proxy of the environment stands before it."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    for name in ("http_proxy", "https_proxy", "all_proxy", "ETT_REGISTRY_CREDENTIALS"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    with serving(tmp_path / "service") as served:
        yield served


def opened(service: Service, pauses: list[float] | None = None, **more: Any) -> HttpRegistry:
    """A client that notes its pauses instead of making them."""
    noted = [] if pauses is None else pauses
    return HttpRegistry(service.url, "toy", sleep=noted.append, **more)


def attempt(registry: HttpRegistry, version: str = "v1") -> bool:
    """Whether a version prepared now becomes visible."""
    with registry.staging(version) as staged:
        fill(staged, version)
        return registry.reveal(staged, version)


def test_a_version_is_whole(service: Service) -> None:
    registry = opened(service)
    assert registry.find("v1") is None
    snapshot = published(registry, "v1", saved_ns=7)
    assert snapshot.uri == f"{service.url}/models/toy/versions/v1"
    assert (service.folder / snapshot.digest).read_bytes() == b"weights"
    assert registry.point_latest(snapshot)
    assert service.latest == {"toy": "v1"}


def test_what_is_there_is_not_uploaded_again(service: Service) -> None:
    registry = opened(service)
    published(registry, "v1")
    assert service.count("PUT") == 1
    published(registry, "v2")
    assert service.count("PUT") == 1


def test_latest_is_never_turned_back_but_by_force(service: Service) -> None:
    registry = opened(service)
    new, old = published(registry, "new", saved_ns=20), published(registry, "old", saved_ns=10)
    assert registry.point_latest(new)
    assert not registry.point_latest(old)
    assert service.latest["toy"] == "new"
    assert registry.point_latest(old, force=True)
    assert service.latest["toy"] == "old"


def test_of_two_publishers_one_wins(service: Service) -> None:
    meeting = threading.Barrier(2)
    service.fail("POST", VERSIONS, Fault(503, times=2, act=meeting.wait))
    won: dict[bytes, bool] = {}

    def publish_one(content: bytes) -> None:
        registry = opened(service)
        with registry.staging("v1") as staged:
            fill(staged, "v1", content=content)
            won[content] = registry.reveal(staged, "v1")

    threads = [threading.Thread(target=publish_one, args=(content,)) for content in (b"a", b"b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(won.values()) == [False, True]
    found = opened(service).find("v1")
    assert found is not None
    winner = next(content for content, first in won.items() if first)
    assert (service.folder / found.digest).read_bytes() == winner


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", VERSIONS),
        ("HEAD", BLOBS),
        ("PUT", BLOBS),
        ("POST", VERSIONS),
        ("POST", LATEST),
    ],
)
@pytest.mark.parametrize("kind", ["status", "cut", "lost"])
def test_what_may_pass_is_asked_again(service: Service, method: str, path: str, kind: str) -> None:
    fault = Fault(503, times=2) if kind == "status" else Fault(kind=kind, times=2)
    service.fail(method, path, fault)
    pauses: list[float] = []
    registry = opened(service, pauses)
    assert registry.find("v1") is None
    assert attempt(registry)
    snapshot = registry.find("v1")
    assert snapshot is not None
    assert registry.point_latest(snapshot)
    assert list(service.versions) == [("toy", "v1")]
    assert fault.times == 0
    assert len(pauses) == 2
    assert 0.5 <= pauses[0] <= 1 <= pauses[1] <= 2


def test_a_service_that_is_busy_says_for_how_long(service: Service) -> None:
    pauses: list[float] = []
    service.fail("GET", VERSIONS, Fault(429, headers={"Retry-After": "9"}))
    opened(service, pauses).find("v1")
    service.fail("GET", VERSIONS, Fault(429, headers={"Retry-After": "86400"}))
    opened(service, pauses).find("v1")
    assert pauses == [9, 60]


@pytest.mark.parametrize(
    ("fault", "tries", "message"),
    [
        (Fault(500), TRIES, rf"answers 500: out of order; asked {TRIES} times; publish again"),
        (Fault(502, "<html>"), TRIES, r"answers 502: no details, 6 bytes; .* publish again"),
        (Fault(kind="cut"), TRIES, rf"cannot be reached: ConnectionError.*; asked {TRIES} times"),
        (Fault(401), 1, r"refuses the credentials \(401: out of order\); check the login or token"),
        (Fault(403), 1, r"refuses the credentials \(403"),
        (Fault(413), 1, r"answers 413: out of order; check the registry's address"),
        (Fault(302, "", {"Location": "http://e.example/x"}), 1, r"302: .* points to e\.example;"),
    ],
)
@pytest.mark.parametrize(("method", "path"), [("GET", VERSIONS), ("PUT", BLOBS), ("POST", MODEL)])
def test_what_does_not_pass_is_told_in_one_line(
    service: Service, method: str, path: str, fault: Fault, tries: int, message: str
) -> None:
    service.fail(method, path, Fault(**{**vars(fault), "times": 99}))
    registry = opened(service)
    with pytest.raises(PublishError, match=message) as caught:
        _ = registry.find("v1"), attempt(registry)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(f"registry {service.url}/")
    assert service.count(method, path) == tries
    assert service.versions == {}


@pytest.mark.parametrize("body", ["<html>hello</html>", "[1]", "", '{"version": 3}', "[" * 9999])
@pytest.mark.parametrize(("method", "path"), [("GET", VERSIONS), ("POST", LATEST)])
def test_garbage_is_called_so(service: Service, method: str, path: str, body: str) -> None:
    registry = opened(service)
    snapshot = published(registry, "v1")
    service.fail(method, path, Fault(200, body, {"Content-Type": "text/html"}))
    with pytest.raises(PublishError, match="answers what no registry does: status 200, text/html"):
        _ = registry.find("v2"), registry.point_latest(snapshot)


def test_the_404_of_a_stranger_is_no_missing_version(service: Service) -> None:
    registry = HttpRegistry(f"{service.url}/elsewhere", "toy", sleep=pytest.fail)
    with pytest.raises(PublishError, match="what no registry does: status 404, text/html"):
        registry.find("v1")


def test_what_requests_makes_of_a_location_that_is_no_address_is_told(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    def follow(*_: object, **__: object) -> None:
        urlsplit("http://[::1")

    monkeypatch.setattr("requests.Session.resolve_redirects", follow)
    service.fail("GET", VERSIONS, Fault(302, "", {"Location": "/"}))
    with pytest.raises(PublishError, match=r"Invalid IPv6 URL; check the registry's address"):
        opened(service).find("v1")


def test_an_endless_answer_is_not_read_to_its_end(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_ett.publish.registries.client._LONGEST_ANSWER", 1 << 17)
    service.fail("GET", VERSIONS, Fault(200, " " * (1 << 18)))
    with pytest.raises(PublishError, match="more than 131072 bytes; check the registry's address"):
        opened(service).find("v1")


def test_another_version_than_asked_for_is_garbage(service: Service) -> None:
    registry = opened(service)
    published(registry, "v1")
    service.versions["toy", "v2"] = service.versions["toy", "v1"]
    with pytest.raises(PublishError, match="what no registry does"):
        registry.find("v2")


def test_a_silent_service_is_given_up(service: Service) -> None:
    service.fail("GET", VERSIONS, Fault(kind="hang", times=99))
    registry = opened(service, timeouts_s=(5, 0.05))
    with pytest.raises(PublishError, match=r"ReadTimeout.*asked 7 times; publish again once"):
        registry.find("v1")


def test_nobody_there_is_told(service: Service, tmp_path: Path) -> None:
    with serving(tmp_path / "gone") as gone:
        registry = opened(gone)
    with pytest.raises(PublishError, match=r"cannot be reached: ConnectionError.*asked 7 times"):
        registry.find("v1")


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"short")])
def test_a_damaged_version_is_named(service: Service, damage: Any) -> None:
    registry = opened(service)
    snapshot = published(registry, "v1")
    damage(service.folder / snapshot.digest)
    with pytest.raises(PublishError, match=r"v1 is damaged: model\.safetensors, .*remove it there"):
        registry.find("v1")


def test_a_file_that_changed_on_its_way_is_refused(service: Service) -> None:
    registry = opened(service)
    with registry.staging("v1") as staged:
        fill(staged, "v1")
        (staged / "model.safetensors").write_bytes(b"other")
        with pytest.raises(PublishError, match="answers 422: the content's SHA-256 is"):
            registry.reveal(staged, "v1")
    assert service.versions == {}


def test_a_large_file_does_not_pass_through_memory(service: Service) -> None:
    content = bytes(48 * 2**20)
    tracemalloc.start()  # the service is in this process, and holds a piece of it, too
    try:
        snapshot = published(opened(service), "v1", content=content)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (service.folder / snapshot.digest).stat().st_size == len(content)
    assert peak < len(content) / 3


@pytest.mark.parametrize(
    ("credentials", "header"),
    [
        ({"token": SECRET}, f"Bearer {SECRET}"),
        ({"login": "ann", "password": "ö"}, "Basic YW5uOsO2"),
        ({"login": "ann", "password": "x", "token": SECRET}, f"Bearer {SECRET}"),
        (None, None),
    ],
)
def test_every_request_bears_the_credentials(
    service: Service, monkeypatch: pytest.MonkeyPatch, credentials: Any, header: str | None
) -> None:
    if credentials:
        monkeypatch.setenv("ETT_REGISTRY_CREDENTIALS", json.dumps(credentials))
    registry = opened(service)
    registry.point_latest(published(registry, "v1"))
    assert service.authorizations == {header}


def test_what_a_service_echoes_is_hidden(
    service: Service, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("ETT_REGISTRY_CREDENTIALS", json.dumps({"token": SECRET}))
    echo = json.dumps({"detail": f"no rights: Bearer {SECRET}"})
    service.fail("GET", VERSIONS, Fault(500, echo, times=3))
    registry = opened(service)
    registry.find("v1")
    assert len(caplog.messages) == 3
    service.fail("GET", VERSIONS, Fault(403, echo))
    with pytest.raises(PublishError, match=r"no rights: Bearer \*\*\*") as caught:
        registry.find("v1")
    assert SECRET not in caplog.text + str(caught.value)


def test_a_secret_is_hidden_wherever_it_is_cut(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A detail is cut to some length, and blanks are joined: both after it is hidden."""
    secret = "wide  " + "x" * 40
    given = {"login": "ann", "password": secret}
    monkeypatch.setenv("ETT_REGISTRY_CREDENTIALS", json.dumps(given))
    for detail in (f"no rights for {secret}", f"{'.' * 280}{secret}"):
        service.fail("GET", VERSIONS, Fault(403, json.dumps({"detail": detail})))
        with pytest.raises(PublishError) as caught:
            opened(service).find("v1")
        assert "wide" not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["https://ann:pw@h.example/r", "https://pw@h.example/r", "https://h.example/r?token=pw"]
)
def test_credentials_in_the_address_are_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="registry: credentials do not belong") as caught:
        HttpRegistry(url, "toy")
    assert "pw" not in str(caught.value)


@pytest.mark.torch
def test_a_publisher_killed_before_it_registers_is_completed_by_the_next(
    site: Any, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ETT_REGISTRY_CREDENTIALS", json.dumps({"token": SECRET}))
    (site.root / "code" / "spy.py").write_text(SPY)
    where = {"registry": service.url, "model": "spy:build"}
    checkpoint, note = site.save(), site.root / "pid"
    kill = Fault(kind="cut", act=lambda: os.kill(int(note.read_text()), signal.SIGKILL))
    service.fail("POST", VERSIONS, kill)
    first = f"import os; open({str(note)!r}, 'w').write(str(os.getpid()))"
    killed = site.run(checkpoint, first=first, **where)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert service.versions == {}
    uploads = service.count("PUT")

    done = site.run(checkpoint, **where)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["uri"] == f"{service.url}/models/toy/versions/{result['version']}"
    assert service.count("PUT") == uploads
    assert service.latest == {"toy": result["version"]}
    assert (service.folder / result["digest"]).stat().st_size == result["bytes"]
    assert SECRET not in done.stdout + done.stderr
    assert SECRET not in b"".join(service.versions.values()).decode()
    assert (site.root / "code" / "spy.told").read_text() == "False", "the model's code has them"
