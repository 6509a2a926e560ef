"""What works with the standard library alone, and what the rest says then."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_ett.events import RunDir

STEPS = [{"step_count": n, "step_start_time": 5.0 + n} for n in range(9)]
PEER = [{"job_start_time": 0.0}, *STEPS, {"job_end_time": 19.0}]


def run_bare(repo: Path, commands: list[list[str]]) -> subprocess.CompletedProcess[str]:
    """Run commands without site-packages (-S), hence with neither Airflow nor any other package."""
    script = f"import sys\nfrom airflow_ett.cli import main\nsys.exit(any(map(main, {commands})))"
    return subprocess.run(
        [sys.executable, "-S", "-c", script],
        env={"PYTHONPATH": str(repo)},
        capture_output=True,
        text=True,
    )


def test_the_metrics_commands_work(repo: Path, run: RunDir, tmp_path: Path) -> None:
    (log, *_) = run.logs()
    peer = tmp_path / "peer.jsonl"
    peer.write_text("".join(json.dumps({"job_name": "j", **entry}) + "\n" for entry in PEER))
    commands = [
        ["metric", str(run.path)],
        ["metric", str(log), "--json"],
        ["interval", "--blocking", "15", "--failures-per-day", "3"],
        ["interval", str(run.path)],
        ["whatif", str(run.path), "--reduce", "replay=50%"],
        ["compare", "--before", str(run.path), "--after", str(run.path)],
        ["import", "ml-goodput", str(peer)],
    ]
    done = run_bare(repo, commands)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    "command",
    [["report"], ["ingest", "."], ["db", "upgrade"], ["schedulers"], ["schedulers", "--json"]],
)
def test_others_say_what_they_need(repo: Path, command: list[str]) -> None:
    done = run_bare(repo, [command])
    assert done.returncode == 1
    assert done.stderr.endswith("is not installed here; pip install 'airflow-ett[airflow]'\n")
    assert done.stderr.count("\n") == 1
