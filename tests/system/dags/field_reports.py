"""Trainings whose task keeps a diary of Airflow's callbacks, and one with mapped instances."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, Param

from airflow_ett.operators import TorchXTrainingOperator, stopping

stopping.MOVED_DELAY = timedelta(seconds=15)

TRAINER = Path(__file__).resolve().parents[1] / "trainers" / "light.py"
PARAMS = {"steps": Param(100, type="integer"), "place": Param("", type="string")}
COMMON: dict[str, Any] = {
    "schedule": None,
    "start_date": datetime(2026, 1, 1, tzinfo=UTC),
    "catchup": False,
    "params": PARAMS,
}


def arguments(place: str) -> list[str]:
    """Return a training's arguments; its place is below the run's."""
    steps = "--steps={{ params.steps }}"
    return ["--script", str(TRAINER), "--", steps, "--place={{ params.place }}" + place]


def diary(word: str) -> Callable[[Any], None]:
    """Return a callback that writes ``word`` into the training's place."""

    def write(context: Any) -> None:
        with (Path(context["params"]["place"]) / "callbacks").open("a") as file:
            file.write(f"{word}\n")

    return write


with DAG("training_diary", **COMMON) as told:
    TorchXTrainingOperator(
        task_id="train",
        poll_interval=0.5,
        deferrable=False,
        component_args=arguments(""),
        on_failure_callback=diary("failure"),
        on_retry_callback=diary("retry"),
        on_skipped_callback=diary("skipped"),
        on_success_callback=diary("success"),
    )

with DAG("training_mapped", **COMMON) as mapped:
    TorchXTrainingOperator.partial(
        task_id="train", poll_interval=0.5, deferrable=False, retries=1
    ).expand(component_args=[arguments(f"/{index}") for index in range(3)])
