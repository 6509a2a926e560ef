"""The images and the compose file, as far as they can be checked without an engine."""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

yaml = pytest.importorskip("yaml")

DOCKERFILES = ("airflow.Dockerfile", "trainer.Dockerfile")
SECRETS = {"AIRFLOW_SECRET_KEY": "one", "AIRFLOW_JWT_SECRET": "two"}


@pytest.fixture(scope="module")
def compose(repo: Path) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((repo / "docker" / "compose.yaml").read_text())
    return content


@pytest.mark.parametrize("name", DOCKERFILES)
def test_what_an_image_copies_is_there(repo: Path, name: str) -> None:
    text = (repo / "docker" / name).read_text()
    copied = [path for line in re.findall(r"^COPY (.+)$", text, re.M) for path in line.split()[:-1]]
    assert copied
    assert [path for path in copied if not (repo / path).exists()] == []
    assert re.search(r"^USER (?!root)", text, re.M)


@pytest.mark.parametrize("name", DOCKERFILES)
def test_the_extras_that_an_image_installs_exist(repo: Path, name: str) -> None:
    import tomllib

    text = (repo / "docker" / name).read_text()
    extras = ",".join(re.findall(r"^ARG EXTRAS=(.+)$|\.\[([a-z,]+)\]", text, re.M)[0])
    project = tomllib.loads((repo / "pyproject.toml").read_text())["project"]
    assert {extra for extra in extras.split(",") if extra} <= set(project["optional-dependencies"])


def test_all_components_run_the_image_that_exists(repo: Path, compose: dict[str, Any]) -> None:
    services = compose["services"]
    assert {"postgres", "api-server", "scheduler", "dag-processor", "triggerer"} <= set(services)
    for name, service in services.items():
        if "build" in service:
            build = service["build"]
            context = repo / "docker" / build["context"]
            assert (context / build["dockerfile"]).is_file(), name
            assert "ett:/ett" in service["volumes"], name
        for volume in service.get("volumes", []):
            assert volume.partition(":")[0] in compose["volumes"], name
        for other in service.get("depends_on", {}):
            assert other in services, name


def test_its_ett_options_are_ours(compose: dict[str, Any]) -> None:
    from airflow_ett.config import OPTIONS

    known = {f"AIRFLOW__ETT__{option.name.upper()}" for option in OPTIONS}
    used = set(compose["services"]["scheduler"]["environment"])
    assert {name for name in used if name.startswith("AIRFLOW__ETT__")} <= known


def test_compose_accepts_the_file(repo: Path) -> None:
    docker = shutil.which("docker")
    if (
        docker is None
        or subprocess.run([docker, "compose", "version"], capture_output=True).returncode
    ):
        pytest.skip("docker compose is not installed")
    config = [docker, "compose", "--file", "docker/compose.yaml", "config", "--quiet"]
    done = subprocess.run(
        config, cwd=repo, env={**os.environ, **SECRETS}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
