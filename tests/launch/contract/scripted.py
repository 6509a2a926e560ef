"""A TorchX scheduler whose apps live what a test wrote for them.

A life is a sequence of answers, one for each time the scheduler is asked about the app; the last
one repeats::

    scheduler = Scripted(folder)
    scheduler.lives = [
        [AppState.PENDING, AppState.RUNNING, OSError("no route"), None, AppState.SUCCEEDED],
        [Slow(5, AppState.RUNNING)],
    ]

The first app that is submitted lives the first life, the second the second, all others the last. An
answer is a state of TorchX, a whole :class:`SchedulerStatus` (of which only a ``Detailed``
scheduler shows more than the state), None (the scheduler does not know the app), an exception to
raise, or any of these :class:`Slow`. A cancelled app goes on with :attr:`Scripted.after_cancel`.

The apps are kept in a folder, so that another process sees the same.
"""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from torchx.schedulers.api import DescribeAppResponse, ListAppResponse, Scheduler
from torchx.specs import AppDef, AppDryRunInfo, AppState, Role, runopts

from airflow_ett.launch.schedulers.logs import OutputFile
from airflow_ett.launch.status import ReplicaStatus, SchedulerStatus

NAME = "scripted"
ROLE = "r"


@dataclass(frozen=True)
class Slow:
    """An answer that takes its time."""

    seconds: float
    answer: Answer


Answer: TypeAlias = AppState | SchedulerStatus | Exception | Slow | None
Life: TypeAlias = Sequence[Answer]


@dataclass(frozen=True)
class App:
    """A submitted app: how it was called, what it still has to answer, and whether to go on."""

    name: str
    life: tuple[Answer, ...]
    cancelled: bool = False


class Scripted(Scheduler[Mapping[str, Any]]):  # type: ignore[misc]
    """``suffix`` is what it appends to an app's name to make its id, as on Kubernetes.

    ``refusal`` is raised by a submit instead of making an app, ``lost_answer`` after it was made.
    """

    def __init__(self, folder: Path, suffix: str = "") -> None:
        super().__init__(NAME, "test")
        self.lives: list[Life] = [[AppState.RUNNING]]
        self.after_cancel: Life = [AppState.CANCELLED]
        self.refusal: Exception | None = None
        self.lost_answer: BaseException | None = None
        self.submitted: list[str] = []
        self.cancelled: list[str] = []
        self.asked = 0
        self._folder = folder
        self._suffix = suffix
        self._lock = threading.Lock()

    def _run_opts(self) -> runopts:
        options = runopts()
        options.add("queue", type_=str, help="the queue", required=True)
        return options

    def _validate(self, app: AppDef, scheduler: str, cfg: Mapping[str, Any]) -> None:
        pass

    def _submit_dryrun(self, app: AppDef, cfg: Mapping[str, Any]) -> AppDryRunInfo[Any]:
        return AppDryRunInfo(app.name, str)

    def schedule(self, dryrun_info: AppDryRunInfo[Any]) -> str:
        """Make an app; ids are names unless there is a suffix, so then a name is refused twice."""
        if self.refusal is not None:
            raise self.refusal
        name: str = dryrun_info.request
        with self._lock:
            number = len(self.submitted)
            app_id = f"{name}{self._suffix}" + (str(number) if self._suffix else "")
            if self._read(app_id):
                raise FileExistsError(f"there is an app {app_id}")
            self._write(app_id, App(name, tuple(self.lives[min(number, len(self.lives) - 1)])))
            self.submitted.append(app_id)
        if self.lost_answer is not None:
            raise self.lost_answer
        return app_id

    def answer(self, app_id: str) -> SchedulerStatus | None:
        """Return the app's next answer, when it comes to that."""
        with self._lock:
            self.asked += 1
            app = self._read(app_id)
            if app is None:
                return None
            now, *later = app.life
            if later:
                self._write(app_id, replace(app, life=tuple(later)))
        return _said(now)

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        status = self.answer(app_id)
        if status is None:
            return None
        state = AppState[status.state or "UNKNOWN"]
        roles = [Role(name=ROLE, image="", num_replicas=1)]
        return DescribeAppResponse(app_id=app_id, state=state, roles=roles)

    def list(self, cfg: Mapping[str, Any] | None = None) -> list[ListAppResponse]:
        ids = [path.stem for path in sorted(self._folder.glob("*.app"))]
        return [ListAppResponse(app_id=app_id, state=AppState.UNKNOWN) for app_id in ids]

    def _cancel_existing(self, app_id: str) -> None:
        with self._lock:
            self.cancelled.append(app_id)
            app = self._read(app_id)
            if app is not None and not app.cancelled:
                self._write(app_id, App(app.name, tuple(self.after_cancel), cancelled=True))

    def exists(self, app_id: str) -> bool:
        """Tell without an answer of the app's life."""
        return self._path(app_id).exists()

    def log_iter(self, app_id: str, role_name: str, k: int = 0, **_: Any) -> Iterator[str]:
        path = self.log_path(app_id, role_name, k)
        return iter(path.read_text().splitlines(keepends=True) if path.exists() else [])

    def log_path(self, app_id: str, role: str, replica: int) -> Path:
        """The file that holds a replica's output."""
        return self._folder / f"{app_id}-{role}-{replica}.log"

    def live_on(self, app_id: str, *life: Answer) -> None:
        """Have an app go on with another life."""
        with self._lock:
            app = self._read(app_id)
            assert app is not None
            self._write(app_id, replace(app, life=life))

    def _path(self, app_id: str) -> Path:
        return self._folder / f"{app_id}.app"

    def _read(self, app_id: str) -> App | None:
        path = self._path(app_id)
        if not path.exists():
            return None
        found: App = pickle.loads(path.read_bytes())
        return found

    def _write(self, app_id: str, app: App) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        draft = self._folder / f".{app_id}"
        draft.write_bytes(pickle.dumps(app))
        draft.replace(self._path(app_id))


class DetailedScripted(Scripted):
    """The same, telling more than TorchX asks for."""

    def detail(self, app_id: str) -> SchedulerStatus | None:
        """Return all that is known of an app, or None when there is none of that id."""
        return self.answer(app_id)

    def output(self, app_id: str, role: str, replica: int) -> OutputFile:
        """Return a replica's output."""
        return OutputFile(self.log_path(app_id, role, replica))


def _said(answer: Answer) -> SchedulerStatus | None:
    if isinstance(answer, Slow):
        time.sleep(answer.seconds)
        return _said(answer.answer)
    if isinstance(answer, Exception):
        raise answer
    if answer is None or isinstance(answer, SchedulerStatus):
        return answer
    return SchedulerStatus(answer.name, raw=answer.name, replicas=(ReplicaStatus(ROLE, 0),))
