"""Publishing as an app: one whoever dies, adopted, ended, and its result read whatever happens."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from airflow_ett.errors import LaunchError, PublishError
from airflow_ett.events import JobKey
from airflow_ett.launch import publishing
from airflow_ett.launch.publishing import App, Asked, PublishApp
from airflow_ett.launch.root import Root
from airflow_ett.launch.status import SchedulerStatus
from airflow_ett.storage import FolderStorage
from airflow_ett.store.rundirs import run_dirs

KEY = JobKey("default", "dag", "run", "publish")
ASKED = Asked(request={"checkpoint": "/c", "transforms": []}, scheduler="fake")
DONE = {"version": "v1", "uri": "/r/m/v1"}


class Died(BaseException):
    """The submitter is killed."""


@dataclass
class Scheduler:
    """A gateway to apps by name; a test sets their states."""

    states: dict[str, Any] = field(default_factory=dict)
    asked: list[list[str]] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    dies: bool = False
    refuses: bool = False

    def prepare(self, component: str, args: list[str], *rest: Any, **more: Any) -> Any:
        self.asked.append(args)
        return more

    def app_id(self, prepared: Any, name: str) -> None:
        return None

    def submit(self, prepared: Any, name: str) -> str:
        if self.refuses:
            raise LaunchError("the queue is closed")
        self.states[name] = SchedulerStatus("RUNNING")
        if self.dies:
            raise Died
        return f"fake://{name}"

    def find(self, name: str, scheduler: str, app_id: str | None) -> str | None:
        return f"fake://{name}" if name in self.states else None

    def status(self, handle: str) -> SchedulerStatus:
        found = self.states.get(handle.removeprefix("fake://"), SchedulerStatus(None))
        if isinstance(found, Exception):
            raise found
        return found  # type: ignore[no-any-return]

    def cancel(self, handle: str) -> None:
        self.cancelled.append(handle.removeprefix("fake://"))

    def last_lines(self, handle: str, count: int) -> list[str]:
        return ["ModuleNotFoundError: No module named 'airflow_ett'"]


@dataclass
class Bench:
    root: Path
    scheduler: Scheduler = field(default_factory=Scheduler)

    def app(self) -> PublishApp:
        gateway: Any = self.scheduler
        return PublishApp(Root(str(self.root)), KEY, gateway)

    def begin(self, asked: Asked = ASKED, try_number: int = 1, max_tries: int = 1) -> App:
        return self.app().begin(asked, try_number=try_number, max_tries=max_tries)

    def tell(self, app: App, outcome: dict[str, Any]) -> None:
        """Write what the app itself would."""
        storage = FolderStorage(self.root / KEY.base)
        storage.write(f"result-{app.number}.json", json.dumps(outcome).encode())

    def files(self) -> list[str]:
        return sorted(path.name.partition("-")[0] for path in (self.root / KEY.base).iterdir())


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_it_is_told_where_its_request_lies_and_its_result_is_read(bench: Bench) -> None:
    app = bench.begin()
    place = bench.root / KEY.base
    tail = ["-m", "airflow_ett.publish.job", "--", str(place), str(app.number)]
    assert bench.scheduler.asked == [tail]
    assert json.loads((place / f"request-{app.number}.json").read_bytes()) == ASKED.request
    assert bench.app().result() is None
    bench.tell(app, {"published": DONE})
    assert bench.app().result() == DONE
    bench.app().forget()
    assert bench.files() == []
    assert list(run_dirs(bench.root)) == []


def test_a_result_counts_whatever_the_scheduler_says(bench: Bench) -> None:
    app = bench.begin()
    bench.scheduler.states[app.name] = SchedulerStatus("FAILED")
    bench.tell(app, {"published": DONE})
    assert bench.app().result() == DONE


def test_what_the_publisher_says_is_the_error(bench: Bench) -> None:
    bench.tell(bench.begin(), {"error": "weights are NaN"})
    with pytest.raises(PublishError, match="weights are NaN"):
        bench.app().result()


@pytest.mark.parametrize("state", ["FAILED", "CANCELLED", "SUCCEEDED"])
def test_an_app_that_is_over_and_left_no_result_has_failed(bench: Bench, state: str) -> None:
    app = bench.begin()
    bench.scheduler.states[app.name] = SchedulerStatus(state)
    with pytest.raises(PublishError, match=f"{state} and left no result.*No module named"):
        bench.app().result()


@pytest.mark.parametrize(
    "status", [SchedulerStatus(None), SchedulerStatus("FAILED", may_return=True)]
)
def test_an_app_that_may_come_back_is_waited_for(
    bench: Bench, status: SchedulerStatus, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(publishing.time, "monotonic", lambda: now[0])
    app, watched = bench.begin(), bench.app()
    bench.scheduler.states[app.name] = status
    assert watched.result() is None
    now[0] = 59.0
    assert watched.result() is None
    bench.scheduler.states[app.name] = SchedulerStatus("RUNNING")
    assert watched.result() is None
    now[0] = 100.0
    bench.scheduler.states[app.name] = status
    assert watched.result() is None
    now[0] = 160.0
    with pytest.raises(PublishError, match="left no result"):
        watched.result()


def test_the_next_try_goes_on_with_an_app_that_lives(bench: Bench) -> None:
    app = bench.begin()
    told = {**ASKED.request, "training": {"published_by": {"try_number": 2}}}
    again = bench.begin(replace(ASKED, request=told), try_number=2)
    assert (again.name, again.try_number) == (app.name, 2)
    assert len(bench.scheduler.states) == 1


def test_an_app_whose_submitter_died_is_found_by_its_name(bench: Bench) -> None:
    bench.scheduler.dies = True
    with pytest.raises(Died):
        bench.begin()
    app = bench.begin(try_number=2)
    assert list(bench.scheduler.states) == [app.name]
    assert app.handle == f"fake://{app.name}"


def test_one_that_never_reached_its_scheduler_is_submitted(bench: Bench) -> None:
    bench.scheduler.refuses = True
    with pytest.raises(LaunchError):
        bench.begin()
    bench.scheduler.refuses = False
    app = bench.begin(try_number=2)
    assert list(bench.scheduler.states) == [app.name]


def test_what_has_published_while_nobody_watched_is_not_submitted_again(bench: Bench) -> None:
    app = bench.begin()
    bench.tell(app, {"published": DONE})
    bench.scheduler.states[app.name] = SchedulerStatus("SUCCEEDED")
    assert bench.begin(try_number=2).name == app.name


@pytest.mark.parametrize("outcome", [None, {"error": "no"}])
def test_a_try_after_one_that_failed_submits_anew(
    bench: Bench, outcome: dict[str, Any] | None
) -> None:
    app = bench.begin()
    bench.scheduler.states[app.name] = SchedulerStatus("FAILED")
    if outcome:
        bench.tell(app, outcome)
    again = bench.begin(try_number=2)
    assert again.name != app.name
    assert bench.files() == ["app.json", "request"]


@pytest.mark.parametrize(
    ("asked", "max_tries"),
    [(replace(ASKED, request={"checkpoint": "/other", "transforms": []}), 1), (ASKED, 2)],
)
def test_one_of_another_request_or_of_a_cleared_task_is_ended(
    bench: Bench, asked: Asked, max_tries: int
) -> None:
    app = bench.begin()
    again = bench.begin(asked, try_number=2, max_tries=max_tries)
    assert bench.scheduler.cancelled == [app.name]
    assert again.name != app.name


def test_a_kill_that_comes_late_leaves_the_next_trys_app_alone(bench: Bench) -> None:
    app = bench.begin()
    bench.begin(try_number=2)
    bench.app().cancel(try_number=1)
    assert bench.scheduler.cancelled == []
    bench.app().cancel(try_number=2)
    assert bench.scheduler.cancelled == [app.name]


def test_silence_of_the_scheduler_is_not_the_apps_end(bench: Bench) -> None:
    app = bench.begin()
    bench.scheduler.states[app.name] = LaunchError("it does not answer")
    with pytest.raises(LaunchError):
        bench.app().result()
