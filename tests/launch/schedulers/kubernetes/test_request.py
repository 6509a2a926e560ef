"""What is asked of the API server: by offline checks, and on the server in memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from torchx.specs import AppDef

from airflow_ett.config import JOB_VARIABLE
from airflow_ett.errors import ConfigurationError
from airflow_ett.events import JobContext, JobKey
from airflow_ett.launch.gateway import Gateway, Prepared
from airflow_ett.launch.names import app_name
from airflow_ett.launch.preparation import validate_static
from airflow_ett.launch.schedulers.kubernetes.options import Opts
from airflow_ett.launch.schedulers.kubernetes.patch import patched
from airflow_ett.launch.schedulers.kubernetes.request import Request, render
from tests.launch.schedulers.kubernetes.server import Server
from tests.launch.schedulers.kubernetes.volcano import expanded

KEY = JobKey("prod", "rank er", "scheduled__2026-11-30T00:00:00+00:00", "train.ünï")
NAME = app_name(KEY, 1)
STRANGE = "comma, 'quote\" $(PATH) $5 {json: 1}\nline\ttab é"

Prepare = Callable[..., Prepared]


@pytest.fixture
def prepare(gateway: Gateway) -> Prepare:
    """Prepare a training: ``prepare({"queue": "q"}, "-j", "2x1", env={...})``."""

    def make(cfg: dict[str, Any] | None = None, *more: str, **options: Any) -> Prepared:
        args = ["--image", "trainer:1", "--script", "/app/train.py", *more]
        return gateway.prepare("train", args, "kubernetes", cfg or {}, **options)

    return make


def rendered(prepared: Prepared) -> Request:
    app: AppDef = prepared.app
    app.name = NAME
    return render(app, Opts.from_cfg(prepared.cfg), {})


def container(request: Request, task: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = request.job["spec"]["tasks"][task]["template"]["spec"]["containers"][0]
    return found


def test_the_name_is_ours_wherever_torchx_writes_one(prepare: Prepare) -> None:
    request = rendered(prepare({}, "-j", "2x1", env={"APP": "${app_id}"}))
    assert request.job["metadata"]["name"] == NAME
    assert request.secret["stringData"]["APP"] == NAME
    template = request.job["spec"]["tasks"][1]["template"]
    assert template["metadata"]["labels"]["app.kubernetes.io/instance"] == NAME
    assert json.dumps(request.job).count(NAME) == json.dumps(request.job).count("ett-rank-er")


def test_people_find_it_by_deployment_dag_and_task(prepare: Prepare) -> None:
    prepared = prepare()
    context = JobContext(key=KEY, submission=3, run_dir="/runs", checkpoints="/c", epoch=1)
    prepared.tell({JOB_VARIABLE: context.encode()})
    request = rendered(prepared)
    template = request.job["spec"]["tasks"][0]["template"]
    for metadata in (request.job["metadata"], template["metadata"], request.secret["metadata"]):
        own = {k: v for k, v in metadata["labels"].items() if k.startswith("airflow-ett/")}
        assert own == {
            "airflow-ett/app": NAME,
            "airflow-ett/deployment": "prod",
            "airflow-ett/dag": "rank-er",
            "airflow-ett/task": "train.-n",
        }
    notes = {"airflow-ett/run": KEY.run_id, "airflow-ett/submission": "3"}
    assert request.job["metadata"]["annotations"] == notes


def test_the_environment_arrives_whole_and_is_not_in_the_job(
    prepare: Prepare, gateway: Gateway, server: Server
) -> None:
    env = {"STRANGE": STRANGE, "ETT_TOKEN": "s3cret", "WHO": "${replica_id}", "EMPTY": ""}
    handle = gateway.submit(prepare({}, "-j", "2x1", env=env), NAME)
    assert handle == f"kubernetes://ett/default:{NAME}"
    for replica in (0, 1):
        got = server.cluster.environment("default", f"{NAME}-trainer-{replica}-0")
        assert got == {**env, "WHO": str(replica), **{k: got[k] for k in got.keys() - env.keys()}}
        assert got["ETT_RESTART"] == "0"
    assert "s3cret" not in json.dumps(server.cluster.jobs["default", NAME])
    (owner,) = server.cluster.secrets["default", NAME]["metadata"]["ownerReferences"]
    assert owner["uid"] == server.cluster.jobs["default", NAME]["metadata"]["uid"]


def test_arguments_arrive_as_they_are(prepare: Prepare) -> None:
    request = rendered(prepare({}, "--", "$(HOME)", "$HOME", "a$$$$b"))
    line = [expanded(part, {"HOME": "/root"}) for part in container(request)["command"]]
    assert line[-3:] == ["$(HOME)", "$HOME", "a$$b"]  # TorchX has made one $ of two before


def test_a_field_of_the_pod_is_a_variable_where_torchx_says_so(prepare: Prepare) -> None:
    request = rendered(prepare(env={"NODE": "[FIELD_PATH]spec.nodeName"}))
    (found,) = [each for each in container(request)["env"] if each["name"] == "NODE"]
    assert found["valueFrom"] == {"fieldRef": {"fieldPath": "spec.nodeName"}}


def test_a_pod_that_fails_or_goes_ends_the_app_unless_volcano_is_to_start_it_again(
    prepare: Prepare,
) -> None:
    spec = rendered(prepare()).job["spec"]
    assert {p["event"]: p["action"] for p in spec["policies"]} == {
        "PodEvicted": "TerminateJob",
        "PodFailed": "TerminateJob",
    }
    spec = rendered(prepare({"requeue": True})).job["spec"]
    assert {p["event"]: p["action"] for p in spec["policies"]} == {
        "PodEvicted": "RestartJob",
        "PodFailed": "TerminateJob",
    }
    assert spec["maxRetry"] > 50


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_max_retries_of_the_component_are_volcanos(prepare: Prepare) -> None:
    """Volcano fails a job at the last of ``maxRetry`` restarts: it needs one more."""
    spec = rendered(prepare({}, "--max_retries", "2")).job["spec"]
    assert spec["maxRetry"] == 3
    assert {p["action"] for p in spec["tasks"][0]["policies"]} == {"RestartJob"}


def test_torchxs_options_are_kept(prepare: Prepare) -> None:
    cfg = {"queue": "gpu", "service_account": "trainer", "priority_class": "high",
           "reserved_millicpu": 500, "reserved_memmb": 24}  # fmt: skip
    job = rendered(prepare(cfg, "--cpu", "8", "--memMB", "1024", "--gpu", "4")).job["spec"]
    pod = job["tasks"][0]["template"]["spec"]
    assert (job["queue"], job["priorityClassName"]) == ("gpu", "high")
    assert pod["serviceAccountName"] == "trainer"
    assert pod["containers"][0]["resources"]["requests"] == {
        "cpu": "7500m",
        "memory": "1000M",
        "nvidia.com/gpu": "4",
    }


def test_secrets_volumes_selectors_and_tolerations_go_through_pod(
    prepare: Prepare, gateway: Gateway, server: Server
) -> None:
    token = {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hf", "key": "token"}}}
    toleration = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
    pod = {
        "metadata": {"annotations": {"prometheus.io/scrape": "true"}, "labels": {"team": "rank"}},
        "spec": {
            "nodeSelector": {"gpu": "h100"},
            "tolerations": [toleration],
            "imagePullSecrets": [{"name": "registry"}],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
            "containers": [
                {"env": [token], "volumeMounts": [{"name": "data", "mountPath": "/data"}]}
            ],
        },
    }
    server.cluster.secrets["default", "hf"] = {"data": {"token": "YQ=="}}
    gateway.submit(prepare({"pod": pod}, "-j", "2x1", env={"HF_TOKEN": "from Airflow"}), NAME)
    for replica in (0, 1):
        found = server.cluster.pods["default", f"{NAME}-trainer-{replica}-0"]
        spec = found["spec"]
        assert (spec["nodeSelector"], spec["tolerations"]) == ({"gpu": "h100"}, [toleration])
        assert [each["name"] for each in spec["volumes"]] == ["dshm", "data"]
        assert [m["mountPath"] for m in spec["containers"][0]["volumeMounts"]] == [
            "/dev/shm",
            "/data",
        ]
        assert found["metadata"]["annotations"]["prometheus.io/scrape"] == "true"
        assert found["metadata"]["labels"]["team"] == "rank"
        assert spec["containers"][0]["name"] == f"trainer-{replica}"
        own = server.cluster.environment("default", f"{NAME}-trainer-{replica}-0")
        assert own["HF_TOKEN"] == "a"


def test_a_node_that_is_avoided_is_left_out_of_what_else_is_wanted(
    gateway: Gateway, prepare: Prepare
) -> None:
    zone = {"key": "zone", "operator": "In", "values": ["a"]}
    terms = [{"matchExpressions": [zone]}, {"matchExpressions": [{**zone, "values": ["b"]}]}]
    kind = "requiredDuringSchedulingIgnoredDuringExecution"
    pod = {"spec": {"affinity": {"nodeAffinity": {kind: {"nodeSelectorTerms": terms}}}}}
    prepared = prepare({"pod": pod, "avoid_nodes": ["gpu-7"]}, avoid=["gpu-2", "gpu-7"])
    spec = rendered(prepared).job["spec"]["tasks"][0]["template"]["spec"]
    got = spec["affinity"]["nodeAffinity"][kind]["nodeSelectorTerms"]
    assert [term["matchExpressions"] for term in got] == [t["matchExpressions"] for t in terms]
    for term in got:
        assert [field["values"] for field in term["matchFields"]] == [["gpu-7"], ["gpu-2"]]
    assert terms[0] == {"matchExpressions": [zone]}, "the user's own was changed"


@pytest.mark.parametrize(
    ("cfg", "problem"),
    [
        ({"que": "q"}, "Unknown run option `que`"),
        ({"queue": 3}, "queue, must be of type"),
        ({"queue": "GPU"}, "queue: 'GPU' is not made of small letters"),
        ({"namespace": "a" * 64}, "namespace: .* has 64 characters; 63 is the limit"),
        ({"pod": {"spec": {"nodeSelectors": {}}}}, r"pod: spec.nodeSelectors: there is no such"),
        ({"pod": {"spec": None}}, "pod: spec: no pod can be without"),
        ({"pod": {"metadata": {"labels": None}}}, "pod: metadata.labels: no pod can be without"),
        ({"pod": {"spce": {}}}, "pod: spce: there is no such field; there are metadata, spec"),
        ({"pod": {"spec": {"tolerations": {"key": "a"}}}}, "pod: spec.tolerations: must be a list"),
        ({"pod": {"spec": {"hostNetwork": "yes"}}}, "spec.hostNetwork: must be true or false"),
        ({"pod": {"spec": {"priority": True}}}, "spec.priority: must be a whole number, not bool"),
        (
            {"pod": {"spec": {"containers": [{"env": [{"name": "PIN", "value": 1234}]}]}}},
            r"env\[0\].value: must be a text, not int$",
        ),
        (
            {"pod": {"spec": {"containers": [{"env": {"PIN": "1"}}]}}},
            "env: must be a list, not dict",
        ),
        ({"pod": {"metadata": {"labels": ["a"]}}}, "metadata.labels: must be a mapping, not list"),
        (
            {"pod": {"spec": {"containers": [{"resources": {"limits": ["cpu=1"]}}]}}},
            "resources.limits: must be a mapping, not list",
        ),
        ({"pod": {"metadata": {"labels": {"a": "b c"}}}}, "metadata.labels.a: 'b c' is not made"),
        ({"pod": {"metadata": {"annotations": {"a b": "c"}}}}, "'a b' is no valid key"),
        (
            {"pod": {"spec": {"containers": [{"env": [{"name": "a-b", "value": "c"}]}]}}},
            "'a-b' is not made of letters, digits and _",
        ),
        (
            {"pod": {"spec": {"containers": [{"resources": {"limits": {"memory": "64 GB"}}}]}}},
            "resources.limits.memory: '64 GB' is no quantity",
        ),
        ({"pod": {"spec": {"restartPolicy": "OnFailure"}}}, "OnFailure would have kubelets start"),
        (
            {"pod": {"spec": {"terminationGracePeriodSeconds": 10}}},
            "10 is less than the 35 s that the trainers are promised",
        ),
    ],
)
def test_what_is_wrong_with_cfg_is_said_before_anything_is_sent(
    prepare: Prepare, server: Server, cfg: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ConfigurationError, match=problem) as error:
        prepare(cfg)
    assert error.value.parameter == "cfg"
    assert server.asked == []
    if "promised" not in problem and "kubelets" not in problem:  # not of the patch alone
        with pytest.raises(ConfigurationError, match=problem):
            validate_static("train", "kubernetes", cfg)


def test_what_is_templated_is_left_for_the_run() -> None:
    pod = {"spec": {"nodeSelector": {"gpu": "{{ params.gpu }}"}, "what": 1}}
    validate_static("train", "kubernetes", {"queue": "{{ params.queue }}", "pod": pod})


@pytest.mark.parametrize(
    ("env", "problem"),
    [
        ({"A-B": "x"}, "'A-B' is not made of letters, digits and _"),
        ({"BIG": "x" * 1_000_001}, "the environment has .* bytes"),
    ],
)
def test_an_environment_that_kubernetes_would_not_take_is_refused(
    prepare: Prepare, server: Server, env: dict[str, str], problem: str
) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        prepare(env=env)
    assert server.asked == []


def test_a_job_that_etcd_would_not_take_is_refused(prepare: Prepare) -> None:
    with pytest.raises(ConfigurationError, match=r"the job has .* bytes; Kubernetes takes about"):
        prepare({}, "-j", "30x1", "--", "x" * 50_000)


def test_without_the_client_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match=r"scheduler: .*airflow-ett\[kubernetes\]"):
        validate_static("train", "kubernetes")
    with pytest.raises(ConfigurationError, match=r"scheduler: .*airflow-ett\[kubernetes\]"):
        Gateway().check("kubernetes")


@pytest.mark.parametrize(
    ("base", "patch", "result"),
    [
        ({"a": {"b": 1}}, {"a": {"c": 2}}, {"a": {"b": 1, "c": 2}}),
        ({"a": {"b": 1}}, {"a": None}, {}),
        ({"a": 1}, {"a": {"b": None}}, {"a": {}}),
        (
            {"volumes": [{"name": "a", "x": 1}]},
            {"volumes": [{"name": "b"}, {"name": "a", "y": 2}]},
            {"volumes": [{"name": "a", "x": 1, "y": 2}, {"name": "b"}]},
        ),
        ({"tolerations": [{"key": "a"}]}, {"tolerations": [{"key": "a"}]},
         {"tolerations": [{"key": "a"}, {"key": "a"}]}),
        ({"containers": [{"name": "own"}]}, {"containers": [{"tty": True}, {"name": "more"}]},
         {"containers": [{"name": "own", "tty": True}, {"name": "more"}]}),
        ({"command": ["a", "b"]}, {"command": ["c"]}, {"command": ["c"]}),
    ],
)  # fmt: skip
def test_a_patch_is_laid_over_by_keys(base: Any, patch: Any, result: Any) -> None:
    before = json.dumps([base, patch])
    assert patched(base, patch) == result
    assert json.dumps([base, patch]) == before
