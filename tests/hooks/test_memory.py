"""A run root that is away is told from one that no job was begun in."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import NEVER_EXPIRE
from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
from airflow.sdk.execution_time.comms import ErrorResponse

from airflow_ett.errors import JobLogError
from airflow_ett.events import JobKey, RunDir
from airflow_ett.hooks.memory import JobMemory
from airflow_ett.launch.rundirlog import RunDirLog

KEY = JobKey("default", "dag", "run", "train")


class Store:
    """Airflow's task state: values by name, which outlive tries."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.away = False

    def get(self, key: str) -> Any:
        self._answer()
        return self.values.get(key)

    def set(self, key: str, value: Any, *, retention: Any) -> None:
        self._answer()
        assert retention is NEVER_EXPIRE
        self.values[key] = value

    def _answer(self) -> None:
        if self.away:
            raise AirflowRuntimeError(ErrorResponse(error=ErrorType.GENERIC_ERROR))


def memory(store: Store | None, max_tries: int = 2) -> JobMemory:
    context: Any = {"ti": SimpleNamespace(max_tries=max_tries)}
    return JobMemory(context | ({"task_state_store": store} if store else {}))


@pytest.fixture
def begun(tmp_path: Path) -> tuple[Store, Path]:
    """A store that remembers the job, and its run directory."""
    store, run_dir = Store(), tmp_path / "mount" / "g1"
    RunDirLog(RunDir(run_dir), KEY).claim(try_number=1, max_tries=2, mode="task")
    memory(store).keep(str(run_dir))
    return store, run_dir


def test_a_log_that_is_there_is_no_matter(begun: tuple[Store, Path]) -> None:
    memory(begun[0]).check(KEY)


def test_r01_a_mount_that_is_away_is_named_and_nothing_is_made(begun: tuple[Store, Path]) -> None:
    """Field report R01: a second training beside the first, here for want of the log."""
    store, run_dir = begun
    mount = run_dir.parent
    mount.rename(mount.with_name("elsewhere"))
    mount.mkdir()
    with pytest.raises(JobLogError, match=r"run_root mounted.*Nothing was submitted") as caught:
        memory(store).check(KEY)
    assert str(run_dir) in str(caught.value)
    assert list(mount.iterdir()) == []


def test_a_cleared_task_may_begin_anew(begun: tuple[Store, Path]) -> None:
    store, run_dir = begun
    run_dir.rename(run_dir.with_name("removed"))
    memory(store, max_tries=4).check(KEY)


def test_without_a_memory_nothing_is_in_the_way(begun: tuple[Store, Path]) -> None:
    memory(Store()).check(KEY)
    memory(None).check(KEY)
    memory(None).keep("/runs/g1")
    store, _ = begun
    store.away = True
    memory(store).check(KEY)
    memory(store).keep("/runs/g1")
