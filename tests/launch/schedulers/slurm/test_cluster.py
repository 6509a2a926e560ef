"""A cluster is one for all of a process, and remembers what folders have said."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from airflow_ett.launch.gateway import Gateway
from airflow_ett.launch.schedulers.slurm import create_scheduler
from airflow_ett.launch.schedulers.slurm.cluster import Cluster
from airflow_ett.launch.schedulers.slurm.folder import Folder, Shape
from airflow_ett.launch.schedulers.slurm.transport import Local, Result


class Counted(Local):
    """Slurm's commands, with the jobs of a test, and how often files were read."""

    def __init__(self) -> None:
        self.jobs = {40: "app-1"}
        self.asked: list[str] = []
        self.reads: list[str] = []

    def run(self, argv: Sequence[str], input: str | None = None) -> Result:
        self.asked.append(argv[0])
        rows = (f"{n}|{name}|RUNNING|None|n1|0|5|6|0|1|\n" for n, name in self.jobs.items())
        return Result(0, "".join(rows) if argv[0] == "squeue" else "", "")

    def read(self, path: Path, offset: int = 0, size: int = -1) -> bytes:
        self.reads.append(path.name)
        return super().read(path, offset, size)


@pytest.fixture
def there() -> Counted:
    return Counted()


def folder(path: Path, there: Counted, job: int) -> Folder:
    made = Folder(path / "app-1", there)
    made.write(Shape("r", 1), "")
    made.note_job(job)
    return made


def test_all_gateways_of_a_process_share_one_question(
    there: Counted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each trigger has a gateway of its own."""
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))
    monkeypatch.setattr(Local, "run", lambda _, argv, input=None: there.run(argv, input))
    for number in range(20):
        there.jobs[number] = f"app-{number}"
        made = Folder(tmp_path / f"app-{number}")
        made.write(Shape("r", 1), "")
        made.note_job(number)
    gateways = [
        Gateway({"slurm": lambda name, **_: create_scheduler(name, state_dir=tmp_path)})
        for _ in range(20)
    ]
    states = {g.status(f"slurm://ett/app-{n}").state for n, g in enumerate(gateways)}
    assert states == {"RUNNING"}
    assert there.asked == ["squeue"]


def test_what_a_folder_has_said_is_not_read_again(there: Counted, tmp_path: Path) -> None:
    at, app = Cluster(there), folder(tmp_path, there, 40)
    for _ in range(5):
        assert at.shape(app) == Shape("r", 1)
        job = at.job(app)
        assert job is not None
        assert job.id == 40
    assert sorted(there.reads) == ["app.json", "job"]


def test_a_number_that_is_noted_anew_counts_where_the_old_one_is_gone(
    there: Counted, tmp_path: Path
) -> None:
    at, app = Cluster(there), folder(tmp_path, there, 40)
    assert at.job(app) is not None
    there.jobs = {41: "app-1"}
    app.note_job(41)
    at.asking.forget()
    job = at.job(app)
    assert job is not None
    assert job.id == 41
    there.jobs.clear()
    at.asking.forget()
    assert at.job(app) is None


def test_a_job_that_nobody_noted_is_found_by_name_where_the_noted_one_is_gone(
    there: Counted, tmp_path: Path
) -> None:
    """An app that slurmctld had lost was submitted again, by one who died right after that."""
    app = folder(tmp_path, there, 40)
    there.jobs = {41: "app-1"}
    job = Cluster(there).job(app)
    assert job is not None
    assert job.id == 41
    assert app.job_id() == 41


def test_a_folder_that_cannot_be_read_is_no_app_that_is_missing(
    there: Counted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at, app = Cluster(there), folder(tmp_path, there, 40)

    def stale(path: Path, offset: int = 0, size: int = -1) -> bytes:
        raise OSError(116, "Stale file handle")

    monkeypatch.setattr(there, "read", stale)
    with pytest.raises(OSError, match="Stale"):
        at.shape(app)
