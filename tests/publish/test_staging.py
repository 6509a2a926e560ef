"""Folders to prepare a version in: nobody's leftovers stay, nobody's work is taken away."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_ett.errors import PublishError
from airflow_ett.publish.registries.staging import Staging
from tests.publish.staged import deny


def test_the_sweep_leaves_the_living_alone(tmp_path: Path) -> None:
    with Staging(tmp_path).folder("v1") as staged:
        Staging(tmp_path).sweep()
        assert staged.is_dir()
    assert list(tmp_path.iterdir()) == []


def test_the_sweep_takes_what_the_dead_left(tmp_path: Path) -> None:
    code = f"""
import os, signal
from pathlib import Path
from airflow_ett.publish.registries.staging import Staging
with Staging(Path({str(tmp_path)!r})).folder("1.0") as staged:
    (staged / "model.safetensors").write_bytes(b"half")
    os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", code], check=False)
    (tmp_path / ".staging-v2-0000.lock").touch()  # died before it made the folder
    (tmp_path / "1.0").mkdir()
    assert len(list(tmp_path.iterdir())) == 4
    Staging(tmp_path).sweep()
    assert [path.name for path in tmp_path.iterdir()] == ["1.0"]


def test_the_sweep_leaves_another_users_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = tmp_path / ".staging-v1-0000.lock"
    lock.touch()
    deny(monkeypatch, lock)
    Staging(tmp_path).sweep()
    assert lock.exists()


def test_on_this_host_it_is_the_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with Staging.on_this_host().folder("v1") as staged:
        root = staged.parent
        assert root.parent == tmp_path
        assert root.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("how", ["a link", "another's"])
def test_one_that_another_user_made_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    root = tmp_path / f"airflow-ett-publish-{os.getuid()}"
    if how == "a link":
        (tmp_path / "elsewhere").mkdir()
        root.symlink_to(tmp_path / "elsewhere")
    else:
        root.mkdir()
        stranger = os.getuid() + 1
        root.rename(tmp_path / f"airflow-ett-publish-{stranger}")
        monkeypatch.setattr(os, "getuid", lambda: stranger)
    with pytest.raises(PublishError, match="belongs to another user; set TMPDIR"):
        Staging.on_this_host()
