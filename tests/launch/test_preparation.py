"""Field report S15: TorchX beside Airflow's providers. How schedulers are set up."""

from __future__ import annotations

import importlib.metadata
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.requirements import Requirement
from torchx.specs import Role, macros

from airflow_ett.errors import ConfigurationError
from airflow_ett.launch import preparation
from airflow_ett.launch.preparation import check_installed, literal, scheduler_factories


def test_s15_two_torchx_side_by_side_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    check_installed()
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.7.0")
    with pytest.raises(ConfigurationError, match=r"torchx 0\.7\.0 are installed side by side"):
        check_installed()


def test_s15_what_torchx_asks_for_and_the_tested_pins_go_together(repo: Path) -> None:
    lines = (repo / "constraints.txt").read_text().splitlines()
    pins = dict(line.lower().split("==") for line in lines if not line.startswith("#"))
    pins = {name.replace("_", "-"): version for name, version in pins.items()}
    assert "torchx-nightly" in pins
    assert "torchx" not in pins
    assert pins["urllib3"].startswith("2.")
    for text in importlib.metadata.requires("torchx-nightly") or ():
        requirement = Requirement(text)
        if requirement.marker is None:
            pin = pins[requirement.name.lower().replace("_", "-")]
            assert requirement.specifier.contains(pin), text


def test_two_schedulers_are_not_imported_side_by_side(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Where two clients import each other, a second thread would see one that is half made."""
    monkeypatch.syspath_prepend(str(tmp_path))
    for own, other in ("ab", "ba"):
        (tmp_path / f"client_{own}.py").write_text(
            "import time\ntime.sleep(0.1)\n"
            f"import client_{other}\ntime.sleep(0.1)\nname = {own!r}\n"
        )
        (tmp_path / f"scheduler_{own}.py").write_text(
            f"import client_{own}\n"
            f"name = client_{own}.name + client_{own}.client_{other}.name\n"
            "create_scheduler = lambda session_name, **_: name\n"
        )
    monkeypatch.setattr(
        preparation, "_PACKAGES", {name: f"scheduler_{name}" for name in ("a", "b")}
    )
    factories = scheduler_factories()
    with ThreadPoolExecutor(2) as pool:
        made = list(pool.map(lambda name: factories[name]("ett"), "ab"))
    assert made == ["ab", "ba"]
    for name in ("scheduler_a", "scheduler_b", "client_a", "client_b"):
        sys.modules.pop(name)


def filled(value: str) -> str:
    role = Role("r", image="", entrypoint="true", env=literal({"V": value}))
    values = macros.Values(img_root="/i", app_id="app", replica_id="3", rank0_env="R")
    return str(values.apply(role).env["V"])


@given(st.text(alphabet="$ab_\n',\"", max_size=12))
def test_a_value_arrives_whole_through_torchx(value: str) -> None:
    assert filled(value) == value


def test_torchx_macros_in_a_value_are_filled_in() -> None:
    assert filled("${app_id}-${replica_id}") == "app-3"
