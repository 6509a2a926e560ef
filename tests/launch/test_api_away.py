"""An API that is away: watching goes on, and nothing is submitted or cancelled meanwhile."""

from __future__ import annotations

import shutil
import socket
from pathlib import Path
from typing import Any

import pytest

from airflow_ett.errors import JobLogError
from airflow_ett.launch.root import Root
from tests.api.server import PREFIX, SECRET, serving
from tests.launch.conftest import Bench


def test_a_training_outlives_its_api(
    empty_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Long enough for an answer of a busy machine, short enough for the three that do not come.
    monkeypatch.setattr("airflow_ett.launch.root._PATIENCE_S", 0.7)
    url = f"sqlite:///{shutil.copy(empty_store, tmp_path / 'ett.db')}"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    bench = Bench(Root(f"http://127.0.0.1:{port}{PREFIX}", SECRET), checkpoints=str(tmp_path))
    with serving(url, port=port):
        watcher: Any = bench.watch()
        assert watcher.poll() is None
    asked = bench.gateway.submitted.copy()
    for _ in range(2):
        bench.tick(1)
        with pytest.raises(JobLogError, match=r"Check \[ett\] api_url") as raised:
            watcher.poll()
        assert SECRET not in str(raised.value)
    with pytest.raises(JobLogError):
        bench.watch(try_number=2)
    assert (bench.gateway.submitted, bench.gateway.cancelled) == (asked, [])
    with serving(url, port=port):
        bench.tick(1)
        assert watcher.poll() is None
        bench.ends("SUCCEEDED")
        assert watcher.poll().cause is None
        assert bench.job_state() == "succeeded"


def test_a_token_that_is_refused_says_which_option_to_look_at(at_the_api: Root) -> None:
    stranger = Bench(Root(at_the_api.address, "another-secret-of-32-characters-or-so"))
    with pytest.raises(JobLogError, match=r"\[ett\] api_secret"):
        stranger.watch()
    assert stranger.gateway.submitted == []


def test_trainers_are_told_the_place_and_a_secret_that_stands_nowhere_else(
    at_the_api: Root, tmp_path: Path
) -> None:
    bench = Bench(at_the_api, checkpoints=str(tmp_path), token=lambda: "ett1.hunter2")
    bench.watch()
    (context,), (env,) = bench.gateway.contexts, bench.gateway.environments
    assert env["ETT_TOKEN"] == "ett1.hunter2"
    assert context.log == bench.open().log.place
    assert context.run_dir == context.key.path.as_posix()
    assert "hunter2" not in env["ETT_JOB"] + repr(context)
    storage = at_the_api.open(context.log)
    kept = [str(event) for event in storage.events("launcher")]
    for folder in ("launcher/claims", "launcher/submissions"):
        names = [entry.name for entry in storage.entries(folder)]
        kept += [(storage.read(f"{folder}/{name}") or b"").decode() for name in names]
    assert len(kept) >= 5
    assert "hunter2" not in "".join(kept)


def test_in_a_run_directory_trainers_need_no_secret(bench: Bench) -> None:
    bench.watch()
    (context,), (env,) = bench.gateway.contexts, bench.gateway.environments
    assert (context.log, context.run_dir) == ("", bench.open().log.place)
    assert "ETT_TOKEN" not in env
