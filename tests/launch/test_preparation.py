"""Field report S15: TorchX beside Airflow's providers."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from airflow_ett.errors import ConfigurationError
from airflow_ett.launch.preparation import check_installed


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
