"""The scheduler against an API server: what it asks, how often, and what it makes of refusals."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pytest
from torchx.schedulers.api import Stream

from airflow_ett.errors import LaunchError
from airflow_ett.launch.gateway import Gateway, Prepared
from airflow_ett.launch.schedulers.kubernetes import asking, create_scheduler, output
from airflow_ett.launch.schedulers.kubernetes.answers import time_ns
from airflow_ett.launch.schedulers.kubernetes.scheduler import Kubernetes
from tests.launch.schedulers.kubernetes import pods
from tests.launch.schedulers.kubernetes.server import TOKEN, Refusal, Server

APP = "default:ett-a"
HANDLE = f"kubernetes://ett/{APP}"
POD = "ett-a-echo-0-0"


@pytest.fixture
def prepared(gateway: Gateway) -> Prepared:
    """An app of one replica."""
    args = ["--image", "trainer:1", "--msg", "hello"]
    return gateway.prepare("utils.echo", args, "kubernetes", {}, env={"A": "secret"})


def refusing(server: Server, status: int, *, of: str, message: str = "no") -> None:
    """Have the server refuse requests that contain ``of``."""

    def refuse(method: str, path: str) -> None:
        if of in f"{method} {path}":
            raise Refusal(status, "Because", message)

    server.before = refuse


def test_many_watched_apps_are_two_requests(
    gateway: Gateway, prepared: Prepared, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each watcher has a scheduler of its own."""

    def create(session: str, **_: object) -> Kubernetes:
        return create_scheduler(session, kubeconfig=str(server.kubeconfig))

    handles = [gateway.submit(prepared, f"ett-{number}") for number in range(30)]
    for handle in handles:
        gateway.status(handle)
    monkeypatch.setattr(asking, "FRESH_S", 60.0)
    gateway.status(handles[0])
    server.asked.clear()
    assert {gateway.status(handle).state for handle in handles} == {"RUNNING"}
    assert server.asked == []
    monkeypatch.setattr(asking, "FRESH_S", 0.0)
    watchers = [Gateway({"kubernetes": create}) for _ in handles]
    first = watchers[0].status(handles[0])
    monkeypatch.setattr(asking, "FRESH_S", 60.0)
    for watcher, handle in zip(watchers, handles, strict=True):
        assert watcher.status(handle).state == first.state == "RUNNING"
    assert Counter(path.rpartition("/")[2] for path in server.asked) == {"jobs": 1, "pods": 1}


def test_what_is_over_is_not_asked_for_again(
    gateway: Gateway, prepared: Prepared, server: Server
) -> None:
    handle = gateway.submit(prepared, "ett-a")
    server.cluster.end("default", "ett-a", lambda pod: pods.end(pod, 0))
    first = gateway.status(handle)
    server.asked.clear()
    assert gateway.status(handle) == first
    assert server.asked == []


def test_the_environment_says_which_cluster(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in a pod of another one."""
    monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    assert create_scheduler("test").detail(APP) is None


def test_many_names_are_asked_for_in_several_requests(
    gateway: Gateway, prepared: Prepared, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_ett.launch.schedulers.kubernetes.api._NAMES", 2)
    handles = [gateway.submit(prepared, f"ett-{number}") for number in range(3)]
    assert {gateway.status(handle).state for handle in handles} == {"RUNNING"}


def test_namespaces_are_asked_by_themselves(gateway: Gateway, server: Server) -> None:
    args = ["--image", "trainer:1"]
    for namespace in ("default", "training"):
        app = gateway.prepare("utils.echo", args, "kubernetes", {"namespace": namespace})
        handle = gateway.submit(app, "ett-a")
        assert handle == f"kubernetes://ett/{namespace}:ett-a"
        assert gateway.find("ett-a", "kubernetes", gateway.app_id(app, "ett-a")) == handle
    server.cluster.end("training", "ett-a", lambda pod: pods.end(pod, 0))
    states = [gateway.status(f"kubernetes://ett/{n}:ett-a").state for n in ("default", "training")]
    assert states == ["RUNNING", "SUCCEEDED"]


def test_a_name_that_somebody_else_has_is_not_ours(
    gateway: Gateway, prepared: Prepared, server: Server
) -> None:
    foreign = {"metadata": {"name": "ett-a"}, "spec": {"tasks": []}, "status": {}}
    server.cluster.jobs["default", "ett-a"] = foreign
    with pytest.raises(LaunchError, match="app default:ett-a exists already"):
        gateway.submit(prepared, "ett-a")
    assert server.cluster.secrets == {}
    assert gateway.status(HANDLE).state is None
    gateway.cancel(HANDLE)
    assert foreign["status"] == {}


def test_who_loses_a_race_for_a_name_has_the_others_app(
    gateway: Gateway, prepared: Prepared, server: Server
) -> None:
    """Both saw that there was none."""
    other = Gateway(
        {"kubernetes": lambda s, **_: create_scheduler(s, kubeconfig=str(server.kubeconfig))}
    )

    def overtake(method: str, path: str) -> None:
        if method == "POST" and path.endswith("/jobs"):
            server.before = None
            other.submit(prepared, "ett-a")

    server.before = overtake
    assert gateway.submit(prepared, "ett-a") == HANDLE
    assert len(server.cluster.jobs) == 1
    assert server.cluster.environment("default", POD)["A"] == "secret"
    assert owned(server)


def test_the_secret_goes_with_a_job_whose_making_was_not_answered(
    gateway: Gateway, prepared: Prepared, server: Server
) -> None:
    def lose(method: str, path: str) -> None:
        if method == "POST" and path.endswith("/jobs"):
            raise ConnectionError

    server.after = lose
    assert gateway.submit(prepared, "ett-a") == HANDLE
    assert owned(server)


def owned(server: Server) -> bool:
    """Tell whether the app's Secret goes when its job does."""
    owners = server.cluster.secrets["default", "ett-a"]["metadata"].get("ownerReferences", [])
    uid = server.cluster.jobs["default", "ett-a"]["metadata"]["uid"]
    return [owner["uid"] for owner in owners] == [uid]


@pytest.mark.parametrize(
    ("status", "message", "told"),
    [
        (401, "Unauthorized", "Its credentials have expired"),
        (403, 'User "airflow" cannot create resource "jobs"', "docs/kubernetes.md"),
        (422, 'admission webhook denied the request: queue "q" not found', 'queue "q" not found'),
        (404, "the server could not find the requested resource", "is Volcano installed?"),
        (429, "too many requests", "too many requests"),
        (500, "etcdserver: request timed out", "etcdserver"),
    ],
)
def test_a_refusal_says_why_and_leaves_no_secret(
    gateway: Gateway, prepared: Prepared, server: Server, status: int, message: str, told: str
) -> None:
    refusing(server, status, of="POST /apis/batch.volcano.sh", message=message)
    with pytest.raises(LaunchError) as error:
        gateway.submit(prepared, "ett-a")
    assert f"the API server refused ({status}): {message}" in str(error.value)
    assert told in str(error.value)
    assert server.cluster.secrets == {}


def test_a_namespace_that_does_not_exist_is_named(gateway: Gateway, server: Server) -> None:
    app = gateway.prepare("utils.echo", [], "kubernetes", {"namespace": "nowhere"})
    with pytest.raises(LaunchError, match='namespaces "nowhere" not found'):
        gateway.submit(app, "ett-a")
    server.installed = False
    app = gateway.prepare("utils.echo", [], "kubernetes", {})
    with pytest.raises(LaunchError, match="could not find the requested resource"):
        gateway.submit(app, "ett-a")


def test_a_secret_without_an_owner_is_no_failure(
    gateway: Gateway, prepared: Prepared, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    refusing(server, 403, of="PATCH /api/v1/namespaces/default/secrets")
    assert gateway.submit(prepared, "ett-a") == HANDLE
    assert "Secret ett-a in default will outlive its app" in caplog.text


def test_the_server_may_check_the_request_first(gateway: Gateway, server: Server) -> None:
    app = gateway.prepare("utils.echo", [], "kubernetes", {"validate_spec": True})
    gateway.submit(app, "ett-a")
    assert server.asked.count("POST /apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs") == 2
    assert len(server.cluster.jobs) == 1


def test_no_server_and_none_that_answers(tmp_path: Path, server: Server) -> None:
    lost = create_scheduler("test", kubeconfig=str(tmp_path / "no-such-file"))
    with pytest.raises(LaunchError, match=r"no API server is configured: .*KUBECONFIG"):
        lost.detail(APP)
    kubeconfig = tmp_path / "elsewhere"
    text = server.kubeconfig.read_text()
    kubeconfig.write_text(text.replace("http://127.0.0.1:", "http://127.0.0.1:1#"))
    with pytest.raises(LaunchError, match=r"the API server at http://127.0.0.1:1.* gave no answer"):
        create_scheduler("test", kubeconfig=str(kubeconfig)).detail(APP)


def test_credentials_that_have_expired_are_read_again(
    scheduler: Kubernetes, server: Server
) -> None:
    """A process may live for longer than a token."""
    good = server.kubeconfig.read_text()
    server.kubeconfig.write_text(good.replace(TOKEN, "expired"))
    with pytest.raises(LaunchError, match="Its credentials have expired"):
        scheduler.detail(APP)
    server.kubeconfig.write_text(good)
    assert scheduler.detail(APP) is None


def test_an_answer_that_never_comes_is_not_waited_for(
    gateway: Gateway, prepared: Prepared, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = gateway.submit(prepared, "ett-a")
    monkeypatch.setattr("airflow_ett.launch.schedulers.kubernetes.api._TIMEOUT_S", (1.0, 0.2))
    server.before = lambda method, path: time.sleep(0.5)
    with pytest.raises(LaunchError, match=r"gave no answer: .*timed out"):
        gateway.status(handle)
    server.before = None
    assert gateway.status(handle).state == "RUNNING"


@pytest.mark.parametrize("state", ["RUNNING", "PENDING"])
def test_a_cancel_waits_for_the_pods_grace(
    gateway: Gateway, prepared: Prepared, server: Server, state: str
) -> None:
    server.cluster.full, server.cluster.lingering = state == "PENDING", True
    handle = gateway.submit(prepared, "ett-a")
    assert gateway.status(handle).state == state
    gateway.cancel(handle)
    assert gateway.status(handle).state == "RUNNING"
    gateway.cancel(handle)
    server.cluster.reap("default", "ett-a")
    assert gateway.status(handle).state == "CANCELLED"


def test_an_app_that_volcano_has_not_seen_yet(
    gateway: Gateway, prepared: Prepared, server: Server
) -> None:
    handle = gateway.submit(prepared, "ett-a")
    server.cluster.jobs["default", "ett-a"]["status"] = {}
    server.cluster.pods.clear()
    server.cluster.groups.clear()
    found = gateway.status(handle)
    assert (found.state, found.raw, found.reason) == ("SUBMITTED", "", "")


@pytest.mark.parametrize("app_id", ["ett-a", "default:", ":ett-a", "Default:ett-a", "a:b:ett-a"])
def test_what_is_no_id_is_no_app(scheduler: Kubernetes, server: Server, app_id: str) -> None:
    assert scheduler.detail(app_id) is None
    assert server.asked == []


def test_apps_are_listed_and_described(
    gateway: Gateway, scheduler: Kubernetes, prepared: Prepared, server: Server
) -> None:
    gateway.submit(prepared, "ett-a")
    foreign = {"metadata": {"name": "else"}, "spec": {}}
    server.cluster.jobs["default", "else"] = foreign
    (app,) = scheduler.list()
    assert (app.app_id, str(app.state), app.name) == (APP, "RUNNING", "ett-a")
    assert scheduler.list({"namespace": "training"}) == []
    shown = scheduler.describe(APP)
    assert shown is not None
    assert shown.ui_url == gateway.log_location(HANDLE)
    assert shown.roles_statuses[0].replicas[0].hostname == "gpu-1"
    assert scheduler.describe("default:nothing") is None


def test_whether_it_is_there_is_asked_in_the_namespace_of_cfg(
    gateway: Gateway, server: Server
) -> None:
    refusing(server, 403, of="/namespaces/default/")
    gateway.reach("kubernetes", {"namespace": "training"})
    with pytest.raises(LaunchError, match=r"refused \(403\)"):
        gateway.reach("kubernetes", {})


def test_output_is_read_on_where_a_job_was_started_again(
    gateway: Gateway, prepared: Prepared, server: Server
) -> None:
    """The pod is another one, and its output begins anew: no line is told twice, or lost."""
    handle = gateway.submit(prepared, "ett-a")
    server.cluster.say("default", POD, "one\ntwo\n")
    text, mark = gateway.read_log(handle)
    assert text == "one\ntwo\n"
    del server.cluster.logs["default", POD]
    assert gateway.read_log(handle, 0, mark) == ("", mark)
    server.cluster.say("default", POD, "three\n")
    text, mark = gateway.read_log(handle, 0, mark)
    assert text == "three\n"
    assert gateway.last_lines(handle, count=5) == ["three"]


def test_output_comes_in_parts_and_none_is_lost(
    gateway: Gateway, prepared: Prepared, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines that were read before may fill a whole part: those after it are asked for, too."""
    monkeypatch.setattr(output, "_CHUNK", 200)
    handle = gateway.submit(prepared, "ett-a")
    told = "".join(f"line {number}\n" for number in range(100))
    server.cluster.say("default", POD, told)
    read, mark = "", 0
    for _ in range(100):
        text, mark = gateway.read_log(handle, 0, mark)
        if not text:
            break
        read += text
    assert read == told


def test_output_that_cannot_be_had_is_none(
    gateway: Gateway, prepared: Prepared, server: Server
) -> None:
    server.cluster.full = True
    handle = gateway.submit(prepared, "ett-a")
    assert gateway.read_log(handle) == ("", 0)
    assert gateway.last_lines(handle) == []
    server.cluster.move("default", "ett-a")
    refusing(server, 500, of="/log")
    with pytest.raises(LaunchError, match=r"the API server refused \(500\)"):
        gateway.read_log(handle)


def test_torchx_reads_the_output_as_well(
    gateway: Gateway, scheduler: Kubernetes, prepared: Prepared, server: Server
) -> None:
    gateway.submit(prepared, "ett-a")
    server.cluster.say("default", POD, "one\ntwo\n")
    assert list(scheduler.log_iter(APP, "echo", 0, regex="w")) == ["two\n"]
    with pytest.raises(ValueError, match="keeps stdout and stderr in one"):
        scheduler.log_iter(APP, "echo", 0, streams=Stream.STDERR)


def test_what_nobody_may_read_is_not_asked_for_again(
    gateway: Gateway, prepared: Prepared, server: Server
) -> None:
    """Events need a right of their own: without it an end is told all the same."""
    handle = gateway.submit(prepared, "ett-a")
    gateway.status(handle)
    refusing(server, 403, of="/events")
    server.cluster.take("default", "ett-a", lambda pod: None)
    server.asked.clear()
    for _ in range(3):
        found = gateway.status(handle)
        assert (found.state, found.raw) == ("FAILED", "PodEvicted")
    assert sum("/events" in asked for asked in server.asked) == 1


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("1970-01-01T00:00:01Z", 10**9),
        ("1970-01-01T00:00:01.5Z", 1_500_000_000),
        ("1970-01-01T00:00:01.000000001Z", 10**9 + 1),
        ("2026-11-30T08:00:00.123456Z", 1_796_025_600_123_456_000),
        ("2026-11-30T16:00:00.123456789+08:00", 1_796_025_600_123_456_789),
        ("2026-11-30T03:00:00-05:00", 1_796_025_600_000_000_000),
    ],
)
def test_kubernetes_times_are_read_to_the_nanosecond(text: str, ns: int) -> None:
    assert time_ns(text) == ns
