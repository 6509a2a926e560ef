"""A run root that is away is told from one that no job was begun in."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import NEVER_EXPIRE
from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
from airflow.sdk.execution_time.comms import ErrorResponse

from airflow_ett.errors import JobLogError
from airflow_ett.events import JobKey
from airflow_ett.hooks.memory import JobMemory
from airflow_ett.launch.root import Root
from airflow_ett.launch.storagelog import StorageLog
from airflow_ett.storage import FolderStorage

KEY = JobKey("default", "dag", "run", "train")
OTHER = Path("/nowhere")


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
    store, run_dir = Store(), tmp_path / KEY.path
    StorageLog(FolderStorage(run_dir), KEY).claim(try_number=1, max_tries=2, mode="task")
    memory(store).keep(str(run_dir), 1)
    return store, run_dir


def test_a_log_that_is_there_is_no_matter(begun: tuple[Store, Path], tmp_path: Path) -> None:
    assert memory(begun[0]).check(KEY, Root(str(tmp_path))) is True
    alias = tmp_path.with_name("alias")
    alias.symlink_to(tmp_path)
    assert memory(begun[0]).check(KEY, Root(str(alias))) is True


@pytest.mark.parametrize("moved", ["run_root", "deployment"])
def test_r01_a_changed_place_is_named(
    begun: tuple[Store, Path], tmp_path: Path, moved: str
) -> None:
    store, run_dir = begun
    key = replace(KEY, deployment="production") if moved == "deployment" else KEY
    root = OTHER if moved == "run_root" else tmp_path
    with pytest.raises(JobLogError) as caught:
        memory(store).check(key, Root(str(root)))
    assert str(run_dir) in str(caught.value)
    assert str(root / key.base) in str(caught.value)
    assert memory(store, max_tries=4).check(key, Root(str(root))) is True


def test_r01_a_mount_that_is_away_is_named_and_nothing_is_made(
    begun: tuple[Store, Path], tmp_path: Path
) -> None:
    """Field report R01: a second training beside the first, here for want of the log."""
    store, run_dir = begun
    mount = run_dir.parent
    mount.rename(mount.with_name("elsewhere"))
    mount.mkdir()
    with pytest.raises(
        JobLogError, match=r"run_root: is it mounted.*Nothing was submitted"
    ) as caught:
        memory(store).check(KEY, Root(str(tmp_path)))
    assert str(run_dir) in str(caught.value)
    assert list(mount.iterdir()) == []


def test_a_cleared_task_may_begin_anew(begun: tuple[Store, Path], tmp_path: Path) -> None:
    store, run_dir = begun
    run_dir.rename(run_dir.with_name("removed"))
    assert memory(store, max_tries=4).check(KEY, Root(str(tmp_path))) is True


def test_without_a_memory_nothing_is_in_the_way(begun: tuple[Store, Path]) -> None:
    assert memory(Store()).check(KEY, Root(str(OTHER))) is False
    assert memory(None).check(KEY, Root(str(OTHER))) is True
    memory(None).keep("/runs/g1", 1)
    store, _ = begun
    store.away = True
    assert memory(store).check(KEY, Root(str(OTHER))) is True
    memory(store).keep("/runs/g1", 1)
