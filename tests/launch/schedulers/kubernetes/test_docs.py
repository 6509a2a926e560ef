"""``docs/kubernetes.md`` as a new user takes it: its rights and its example, as they stand."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from airflow_ett.errors import LaunchError
from airflow_ett.events import Cause
from airflow_ett.launch.gateway import Gateway
from airflow_ett.launch.request import Request
from airflow_ett.launch.schedulers.kubernetes.options import RUN_OPTIONS
from airflow_ett.launch.verdict import RAW_CAUSES
from tests.launch.conftest import Bench
from tests.launch.schedulers.kubernetes import pods
from tests.launch.schedulers.kubernetes.conftest import Scene
from tests.launch.schedulers.kubernetes.server import Refusal, Right, Server

pytest.importorskip("airflow.sdk")

PAGE = (Path(__file__).resolve().parents[4] / "docs" / "kubernetes.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def granted() -> frozenset[Right]:
    (role,) = [thing for text in blocks("yaml") for thing in yaml.safe_load_all(text)
               if thing["kind"] == "Role"]  # fmt: skip
    assert role["metadata"]["namespace"] == "training"
    return frozenset(
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    )


def example() -> Any:
    names: dict[str, Any] = {}
    exec(blocks("python")[0], names)
    return names["dag"].get_task("train")


@pytest.fixture
def at(bench: Bench, server: Server, gateway: Gateway) -> Scene:
    """The example, watched, with the page's rights alone."""
    server.rights = granted()
    server.cluster.secrets["training", "hf"] = {"data": {"token": "aGY="}}
    task = example()
    bench.gateway = gateway  # type: ignore[assignment]
    bench.token = lambda: "s3cret"
    bench.request = Request(task.component, task.component_args, task.scheduler, cfg=task.cfg)
    Scene.server, Scene.namespace = server, "training"
    return Scene(bench, {})


def test_the_example_runs_with_the_rights_of_the_page(at: Scene, server: Server) -> None:
    assert at.look(after_s=1) is None
    at.taken(pods.preempted_by_volcano, replica=2)
    assert at.look(after_s=1) is None
    assert (at.apps, at.causes()) == (2, [Cause.PREEMPTED])
    server.cluster.say("training", f"{at.app}-trainer-0-0", "step 1\n")
    assert at.look(after_s=1) is None
    assert at.watcher.read_log() == "step 1\n"
    at.ends(lambda pod: pods.end(pod, 1))
    assert at.look(after_s=1).cause is Cause.APPLICATION
    template = server.cluster.pods["training", f"{at.app}-trainer-0-0"]["spec"]
    mounts = {mount["mountPath"] for mount in template["containers"][0]["volumeMounts"]}
    assert mounts == {"/dev/shm", "/ett/runs", "/data"}
    own = server.cluster.environment("training", f"{at.app}-trainer-0-0")
    assert (own["HF_TOKEN"], own["ETT_TOKEN"]) == ("hf", "s3cret")
    assert "s3cret" not in json.dumps(server.cluster.jobs["training", at.app])


def test_every_right_of_the_page_is_made_use_of(
    at: Scene, gateway: Gateway, server: Server
) -> None:
    """And none beside, whatever happens."""
    assert at.look(after_s=1) is None
    gateway.read_log(str(at.watcher.handle))
    at.taken(lambda pod: None)
    server.cluster.closed = True
    assert at.look(after_s=1) is None
    assert at.apps == 2
    assert at.look(after_s=1) is None
    at.watcher.begin_user_cancel()
    prepared = gateway.prepare("utils.echo", [], "kubernetes", {"namespace": "training"})
    for name in ("ett-x", "ett-x2"):
        server.cluster.secrets["training", name] = {"metadata": {"name": name}, "data": {}}
    gateway.submit(prepared, "ett-x")

    def refuse(method: str, path: str) -> None:
        if method == "POST" and path.endswith("/jobs"):
            raise Refusal(422, "Invalid", "no such queue")

    server.before = refuse
    with pytest.raises(LaunchError, match="no such queue"):
        gateway.submit(prepared, "ett-x2")
    assert server.used == granted()


def test_every_option_and_every_word_is_on_the_page() -> None:
    rows = re.findall(r"^\| (`.*?) \|", PAGE, re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert {name for name, _ in RUN_OPTIONS} <= named
    words = {word for word in RAW_CAUSES if not word.isupper() and word != "supervisor_lost"}
    rare = {"Preempted", "PreemptionByKubeScheduler", "TerminationByKubelet", "NodeAffinity",
            "TaintManagerEviction", "ContainerStatusUnknown"}  # fmt: skip
    assert words - rare <= named
