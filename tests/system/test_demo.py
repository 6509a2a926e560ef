"""The whole path for real: Airflow, two failures, resumes, publishing, the rollup, the report."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("airflow")
pytest.importorskip("torch")

pytestmark = [pytest.mark.airflow, pytest.mark.torch, pytest.mark.timeout(900)]

SHORT = {"samples": 120_000, "inject": "1:raise:40000,2:kill:80000"}


@pytest.fixture(scope="module")
def said() -> list[str]:
    return []


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, said: list[str]) -> Iterator[Path]:
    """The folder of a demo with less data, run to its end and stopped."""
    from airflow_ett.demo.course import Demo
    from airflow_ett.demo.home import demo_home

    with demo_home(tmp_path_factory.mktemp("demo") / "home") as folder:
        demo = Demo(folder, 0, said.append, SHORT)
        try:
            demo.run()
        except BaseException:
            print("\n".join(said))
            raise
        finally:
            demo.stack.stop()
        yield folder


@pytest.fixture(scope="module")
def job(home: Path) -> dict[str, Any]:
    """The one job that the demo left, as a user's report shows it after Airflow has gone."""
    done = subprocess.run(
        [sys.executable, "-m", "airflow_ett.cli", "report", "--json"],
        env={**os.environ, "AIRFLOW_HOME": str(home)},
        stdout=subprocess.PIPE,
        check=True,
    )
    (only,) = json.loads(done.stdout)
    result: dict[str, Any] = only
    return result


def test_it_survived_an_airflow_retry_and_a_relaunch(job: dict[str, Any]) -> None:
    assert (job["dag_id"], job["state"]) == ("example_ett_ranker", "succeeded")
    assert (job["quality"], job["quality_reasons"]) == ("complete", [])
    assert job["frozen"] is True
    assert job["nof"] == 2
    attempts = job["attempts"]
    assert [attempt["layer"] for attempt in attempts] == ["first", "airflow", "relaunch"]
    assert [attempt["try"] for attempt in attempts] == [1, 2, 2]
    assert [attempt["cause"] for attempt in attempts] == ["application", "infrastructure", None]
    assert "InjectedFailure" in json.dumps(attempts[0]["evidence"])


def test_the_partition_is_exact(job: dict[str, Any]) -> None:
    wall = job["wall_ns"]
    for sums in ("phases_ns", "components_ns", "levels_ns"):
        assert sum(job[sums].values()) == wall
    assert sum(sum(attempt["phases_ns"].values()) for attempt in job["attempts"]) == wall
    assert job["phases_ns"]["replay"] > 0
    assert 0 < job["ett_pct"] <= job["ett_pct_held"] <= 100
    unexplained = [
        job["phases_ns"].get(p, 0) for p in ("unattributed", "loop_other", "trainer_init")
    ]
    assert sum(unexplained) < 0.05 * wall


def test_every_resume_begins_at_a_committed_cursor_and_leaves_no_gap(job: dict[str, Any]) -> None:
    committed = {c["cursor"] for c in job["checkpoints"] if c["committed_ns"] is not None}
    reached = 0
    for attempt in job["attempts"]:
        assert attempt["cursor_from"] in committed | {0}
        assert attempt["cursor_from"] <= reached
        reached = attempt["cursor_to"]
    assert SHORT["samples"] - 256 < reached <= SHORT["samples"]


def test_the_model_was_published_after_the_training_had_ended(
    job: dict[str, Any], home: Path
) -> None:
    (published,) = job["published"]
    assert published["begin"] >= job["end_ns"]
    assert Path(published["uri"].removeprefix("file://")).is_relative_to(home / "ett" / "registry")


def test_it_told_what_happened(said: list[str], job: dict[str, Any]) -> None:
    text = "\n".join(said)
    for part in ("Airflow is up", "attempt 3: succeeded", "published version", "rollup"):
        assert part in text
    latencies = [line for line in said if line.startswith("retry latency after ")]
    assert ["application (airflow)" in latencies[0], "(relaunch)" in latencies[1]] == [True, True]
    assert f"/dags/{job['dag_id']}/runs/{job['run_id']}/plugin/ett-run" in text


def test_nothing_is_left_running(home: Path) -> None:
    from airflow_ett.demo.processes import of_stack

    assert of_stack(home) == set()
