"""Who may import whom, and what each side does without."""

import subprocess
import sys
from pathlib import Path

import pytest

BLOCKER = """
import importlib, sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"{{name}} is not installed here")

sys.meta_path.insert(0, Blocker())
for module in {modules!r}:
    importlib.import_module(module)
"""

TRAINER = ["trainer", "trainer.agent", "checkpoints", "events", "publish", "metric", "config"]
AIRFLOW = ["operators", "triggers.training", "hooks", "retry", "dags", "provider", "ui.plugin"]
STORE = ["store", "fleet", "cli"]


def import_without(modules: list[str], *blocked: str) -> None:
    names = [f"airflow_ett.{module}" for module in modules]
    done = subprocess.run(
        [sys.executable, "-c", BLOCKER.format(blocked=set(blocked), modules=names)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_layers_hold(repo: Path) -> None:
    lint = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run(
        [lint, "--no-cache"], cwd=repo, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_trainer_image_needs_nothing_but_the_standard_library() -> None:
    third_party = ("airflow", "torchx", "sqlalchemy", "alembic", "requests", "plotly", "fastapi")
    import_without(TRAINER, *third_party, "torch", "numpy", "safetensors")


def test_airflow_needs_no_torch() -> None:
    pytest.importorskip("airflow")
    import_without(AIRFLOW, "torch", "numpy", "safetensors")


def test_the_store_needs_no_airflow() -> None:
    pytest.importorskip("sqlalchemy")
    import_without(STORE, "airflow", "torch", "torchx")
