"""The demo's folder: whose it is, what stays in it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_ett.demo.home import demo_home
from airflow_ett.demo.processes import MARKER
from airflow_ett.errors import ConfigurationError, DemoError


def test_the_next_demo_finds_the_data_and_nothing_else(tmp_path: Path) -> None:
    with demo_home(tmp_path / "home") as home:
        (home / "ett" / "data").mkdir(parents=True)
        (home / "ett" / "data" / "ratings").write_text("1")
        (home / "ett" / "runs").mkdir()
        (home / "airflow.db").write_text("old")
        (home / "latest").symlink_to(home / "ett", target_is_directory=True)
    with demo_home(tmp_path / "home") as home:
        assert (home / "ett" / "data" / "ratings").read_text() == "1"
        left = {str(path.relative_to(home)) for path in home.rglob("*")}
        assert left == {"airflow-ett-demo.lock", "ett", "ett/data", "ett/data/ratings"}


def test_somebody_elses_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(ConfigurationError, match=r"--home: .* is not empty"), demo_home(tmp_path):
        pass
    assert (tmp_path / "thesis.txt").read_text() == "mine"


def test_a_path_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="--home"), demo_home(tmp_path / "file" / "home"):
        pass


def test_two_demos_do_not_share_a_folder(tmp_path: Path) -> None:
    with (
        demo_home(tmp_path / "home"),
        pytest.raises(DemoError, match="another demo"),
        demo_home(tmp_path / "home"),
    ):
        pass


def test_what_a_crashed_demo_left_running_is_ended(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with demo_home(home):
        pass
    child = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(60)"],
        env={**os.environ, MARKER: str(home)},
    )
    with demo_home(home):
        assert child.wait(timeout=10) != 0


def test_a_full_disk_is_said_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=100_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage)
    with pytest.raises(DemoError, match=r"0\.1 GB free .* 2 GB needed"), demo_home(tmp_path / "h"):
        pass
