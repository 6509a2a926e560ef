"""Publishing as an app of a TorchX scheduler: submitted once whoever dies, waited for, ended.

The app and whoever submitted it share nothing but files below the run root::

    <root>/<task instance>/app.json               the newest app: name, handle, what it was asked
                           request-<number>.json  what it is to publish
                           result-<number>.json   what came of it, written by the app, last

``app.json`` is written before the scheduler is asked and once more with the handle: an app whose
handle is unknown is found by its name. A later try, or process, of the same task goes on with an
app that was asked for the same; one of another request, or whose task was cleared meanwhile, is
cancelled. Nothing is lost by an app too many: publishing a checkpoint twice makes one version.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from airflow_ett.errors import LaunchError, PublishError
from airflow_ett.events import JobKey
from airflow_ett.launch.names import app_name
from airflow_ett.launch.root import Root

if TYPE_CHECKING:
    from airflow_ett.launch.gateway import Gateway, Prepared
    from airflow_ett.launch.status import SchedulerStatus

COMPONENT = "utils.python"

RESOURCE: Mapping[str, int] = {"cpu": 2, "gpu": 0, "memMB": 4096}
"""What a publisher asks for where its task says nothing: PyTorch, and a tensor at a time."""

_APP = "app.json"
_MODULE = "airflow_ett.publish.job"

_SILENCE_S = 60.0
"""For so long a scheduler may not know the app, or call one failed that it may start again."""

_LAST_LINES = 200


@dataclass(frozen=True, slots=True)
class Asked:
    """What a task asks for: a publisher's request, and where it is to run. Only JSON types."""

    request: Mapping[str, Any]
    scheduler: str
    cfg: Mapping[str, Any] = field(default_factory=dict)
    resource: str | Mapping[str, int] | None = None
    image: str | None = None

    @property
    def digest(self) -> str:
        """16 hexadecimal digits that change with anything that is asked for.

        What the manifest is to tell of the training is no part of it: it is another in each try.
        """
        request = {name: value for name, value in self.request.items() if name != "training"}
        text = json.dumps({**asdict(self), "request": request}, sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class App:
    """An app that was, or is about to be, submitted: ``handle`` is None while only intended.

    ``number`` is when that was (UTC nanoseconds); ``try_number`` and ``max_tries`` are of the try
    that has it now.
    """

    number: int
    name: str
    scheduler: str
    digest: str
    try_number: int
    max_tries: int
    app_id: str | None = None
    handle: str | None = None


class PublishApp:
    """The app of one task instance, whichever try's."""

    def __init__(self, root: Root, key: JobKey, gateway: Gateway) -> None:
        self._key = key
        self._gateway = gateway
        self._storage = root.open(f"{root.address}/{key.base.as_posix()}")
        self._odd_since: float | None = None

    def begin(self, asked: Asked, *, try_number: int, max_tries: int) -> App:
        """Go on with the app that was asked for the same, or submit one.

        Raises :class:`ConfigurationError` that names the parameter, :class:`LaunchError` when the
        scheduler refuses or cannot be asked.
        """
        app = self._read()
        if app is not None:
            cleared = max_tries > app.max_tries
            same = app.digest == asked.digest and not cleared
            app = self._found(app)
            if app is not None and same and self._goes_on(app):
                return self._keep(replace(app, try_number=try_number, max_tries=max_tries))
            self._end(app)
            self.forget()
        return self._submit(asked, try_number, max_tries)

    def result(self) -> dict[str, Any] | None:
        """Return what the app has published, None while it is at it.

        Raises :class:`PublishError` when it failed, or has ended and left no result.
        """
        app = self._read()
        if app is None or app.handle is None:
            raise PublishError(f"{self._place}: the app that was to publish is not known any more")
        told = self._told(app)
        if told is None and self._over(app):
            self._storage.entries("")  # an NFS client remembers that the file was not there
            told = self._told(app) or {"error": self._no_result(app)}
        if told is not None and "error" in told:
            raise PublishError(told["error"])
        return None if told is None else dict(told["published"])

    def output(self) -> list[str]:
        """Return the last lines that the app has printed; none when they cannot be read."""
        app = self._read()
        if app is None or app.handle is None:
            return []
        try:
            return self._gateway.last_lines(app.handle, count=_LAST_LINES)
        except LaunchError:
            return []

    def cancel(self, try_number: int | None = None) -> None:
        """End the app; with ``try_number`` only if it is still this try's.

        Raises :class:`LaunchError` when the scheduler cannot be asked.
        """
        app = self._read()
        if app is not None and try_number in (None, app.try_number):
            self._end(self._found(app))

    def forget(self) -> None:
        """Remove the app's files: it is over, and what came of it is known."""
        app = self._read()
        if app is not None:
            for name in (_result(app.number), _request(app.number), _APP):
                self._storage.remove(name)

    @property
    def _place(self) -> str:
        return self._storage.place

    def _submit(self, asked: Asked, try_number: int, max_tries: int) -> App:
        number = time.time_ns()
        prepared = self._prepare(asked, number)
        name = app_name(self._key, 1, number)
        app = App(
            number=number,
            name=name,
            scheduler=asked.scheduler,
            digest=asked.digest,
            try_number=try_number,
            max_tries=max_tries,
            app_id=self._gateway.app_id(prepared, name),
        )
        self._storage.write(_request(number), json.dumps(dict(asked.request)).encode())
        self._keep(app)
        return self._keep(replace(app, handle=self._gateway.submit(prepared, name)))

    def _prepare(self, asked: Asked, number: int) -> Prepared:
        image = [f"--image={asked.image}"] if asked.image else []
        return self._gateway.prepare(
            COMPONENT,
            [*image, "-m", _MODULE, "--", self._place, str(number)],
            asked.scheduler,
            asked.cfg,
            resource=RESOURCE if asked.resource is None else asked.resource,
        )

    def _found(self, app: App) -> App | None:
        """Return the app with its handle, None where the scheduler never had it."""
        if app.handle is not None:
            return app
        handle = self._gateway.find(app.name, app.scheduler, app.app_id)
        return None if handle is None else replace(app, handle=handle)

    def _goes_on(self, app: App) -> bool:
        """Return whether the app is at it, or has published."""
        told = self._told(app)
        return "published" in told if told else not self._status(app).terminal

    def _end(self, app: App | None) -> None:
        if app is not None and app.handle is not None:
            self._gateway.cancel(app.handle)

    def _told(self, app: App) -> dict[str, Any] | None:
        content = self._storage.read(_result(app.number))
        return None if content is None else json.loads(content)

    def _over(self, app: App) -> bool:
        """Return whether nothing will come of the app any more."""
        status = self._status(app)
        if status.terminal and not status.may_return:
            return True
        if status.state not in (None, "UNKNOWN") and not status.terminal:
            self._odd_since = None
            return False
        now = time.monotonic()
        self._odd_since = now if self._odd_since is None else self._odd_since
        return now - self._odd_since >= _SILENCE_S

    def _status(self, app: App) -> SchedulerStatus:
        assert app.handle is not None
        return self._gateway.status(app.handle)

    def _no_result(self, app: App) -> str:
        state = self._status(app).state or "not known to its scheduler any more"
        words = " / ".join(self.output()[-3:])
        return (
            f"{app.handle} is {state} and left no result in {self._place}: is that folder shared "
            f"with its nodes, and airflow_ett in its image? Its last words: {words or 'none'}"
        )

    def _read(self) -> App | None:
        content = self._storage.read(_APP)
        return None if content is None else App(**json.loads(content))

    def _keep(self, app: App) -> App:
        self._storage.write(_APP, json.dumps(asdict(app)).encode())
        return app


def _request(number: int) -> str:
    return f"request-{number}.json"


def _result(number: int) -> str:
    return f"result-{number}.json"
