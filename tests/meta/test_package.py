"""What the wheel holds and what it promises to installers and to Airflow."""

import importlib.metadata
import importlib.util
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

from airflow_ett import __version__


@pytest.fixture(scope="module")
def project(repo: Path) -> dict[str, Any]:
    with (repo / "pyproject.toml").open("rb") as file:
        table: dict[str, Any] = tomllib.load(file)["project"]
        return table


@pytest.fixture(scope="module")
def wheel(repo: Path, tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    if importlib.util.find_spec("hatchling") is None:
        pytest.skip("hatchling is not installed: pip install 'airflow-ett[dev]'")
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel"]
    subprocess.run([*build, "--directory", str(folder)], cwd=repo, check=True)
    (path,) = folder.glob("*.whl")
    return zipfile.ZipFile(path)


def test_the_wheel_holds_all_data_files(repo: Path, wheel: zipfile.ZipFile) -> None:
    held = set(wheel.namelist())
    package = repo / "airflow_ett"
    data = {
        str(path.relative_to(repo))
        for path in package.rglob("*")
        if path.is_file() and path.suffix not in {".pyc", ".pyo"}
    }
    assert data - held == set()
    assert any("/migrations/versions/" in name for name in held)
    assert any(name.endswith(".html") for name in held)


def test_the_wheel_holds_the_example_dags_and_the_licence(
    repo: Path, wheel: zipfile.ZipFile
) -> None:
    held = set(wheel.namelist())
    for path in (repo / "dags").glob("*.py"):
        assert f"airflow_ett/example_dags/{path.name}" in held
    assert f"airflow_ett-{__version__}.dist-info/licenses/LICENSE" in held


def test_the_wheel_needs_nothing_unless_an_extra_is_asked_for(wheel: zipfile.ZipFile) -> None:
    metadata = wheel.read(f"airflow_ett-{__version__}.dist-info/METADATA").decode()
    needs = [line for line in metadata.splitlines() if line.startswith("Requires-Dist:")]
    assert needs
    assert all("extra ==" in line for line in needs)


def test_versions_agree(project: dict[str, Any]) -> None:
    assert project["version"] == __version__


def test_entry_points_load(project: dict[str, Any]) -> None:
    pytest.importorskip("airflow")
    scripts = {"console_scripts": project["scripts"]}
    for group, entries in (project["entry-points"] | scripts).items():
        for name, value in entries.items():
            assert importlib.metadata.EntryPoint(name, value, group).load()


def test_airflow_accepts_the_providers_description(project: dict[str, Any]) -> None:
    pytest.importorskip("airflow")
    from airflow_ett.provider import get_provider_info

    info = get_provider_info()
    assert info["package-name"] == project["name"]
    assert info["versions"] == [__version__]
    for kind in ("operators", "triggers", "hooks"):
        for integration in info[kind]:
            for module in integration["python-modules"]:
                assert importlib.util.find_spec(module), module


def test_pins_satisfy_what_the_project_asks_for(repo: Path, project: dict[str, Any]) -> None:
    requirements = pytest.importorskip("packaging.requirements")
    lines = (repo / "constraints.txt").read_text().splitlines()
    pins = dict(line.lower().split("==") for line in lines if not line.startswith("#"))
    for group in project["optional-dependencies"].values():
        for text in group:
            requirement = requirements.Requirement(text)
            if requirement.name != project["name"]:
                assert requirement.specifier.contains(pins[requirement.name]), text
