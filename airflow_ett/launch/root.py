"""Where the job logs of a deployment lie, and how its launchers and trainers get at them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from airflow_ett.config import Settings
from airflow_ett.errors import JobLogError
from airflow_ett.events import JobKey
from airflow_ett.launch.storagelog import StorageLog, reachable
from airflow_ett.storage import Storage, is_at_api, is_folder, open_storage
from airflow_ett.storage.tokens import Role, is_job, issue, secrets_of

_API = "/ett/api/v1"
_PATIENCE_S = 3.0
"""An API that is away must not keep a watcher from its deadlines and its kill flag: the next look
tries again."""

_LAUNCHER_S = 3600.0
_TRAINER_S = 14 * 86_400.0
"""A trainer renews its token while it lives; one that waits in a queue cannot."""


@dataclass(frozen=True, slots=True)
class Root:
    """The root of all places: an absolute folder, an fsspec URI, or the API's address.

    A job's place below it is ``<root>/<key's path>``; at the API it is ``<root>/logs/<job id>``.
    Where a root cannot be listed, the place of generation 0 holds an empty file ``g<number>`` for
    each of a task instance's generations. ``secret`` signs the tokens for the API.
    """

    address: str
    secret: str = field(default="", repr=False)

    @classmethod
    def of(cls, settings: Settings) -> Root:
        """Return the API's root where ``[ett] api_url`` is set, else ``[ett] run_root``.

        Raises :class:`ConfigurationError` where the API has no secret, or too short a one.
        """
        if not settings.api_url:
            return cls(str(settings.run_root))
        secrets_of(settings.api_secret)
        return cls(settings.api_url + _API, settings.api_secret)

    @property
    def option(self) -> str:
        """The option that says where it is."""
        return "[ett] api_url" if self.is_api else "[ett] run_root"

    @property
    def is_api(self) -> bool:
        """Whether the API holds the logs."""
        return is_at_api(self.address)

    @property
    def folder(self) -> Path | None:
        """The folder that launchers and trainers share, None where it is none."""
        return Path(self.address) if is_folder(self.address) else None

    def place(self, key: JobKey) -> str:
        """Return the place of a job."""
        return f"{self.address}/{f'logs/{key.id}' if self.is_api else key.path.as_posix()}"

    def holds(self, place: str, key: JobKey) -> bool:
        """Return whether a place is that of ``key`` below this root, whichever its generation."""
        folder = self.folder
        if folder is not None and is_folder(place):
            return Path(place).parent.resolve() == (folder / key.base).resolve()
        return place == self.place(key) or (
            not self.is_api and place.rpartition("/")[0] == f"{self.address}/{key.base.as_posix()}"
        )

    def open(self, place: str) -> Storage:
        """Return the storage at a place that a job has once picked, of this root or another.

        Raises :class:`JobLogError` for an address that is none of this API: it gets no token.
        """
        if not is_at_api(place):
            return open_storage(place)
        base, _, job = place.rpartition("/")
        if base != f"{self.address}/logs" or not is_job(job):
            raise JobLogError(
                f"A job's log lies at {place}, which is no place of [ett] api_url: that says "
                f"{self.address.removesuffix(_API) if self.is_api else 'nothing'}. Set it back."
            )

        def token() -> str:
            return issue(self.secret, job, Role.LAUNCHER, _LAUNCHER_S)

        from airflow_ett.storage.http import HttpStorage

        return HttpStorage(place, token, patience_s=_PATIENCE_S)

    def log(
        self, key: JobKey, *, place: str | None = None, redact: Callable[[Any], Any] = lambda v: v
    ) -> StorageLog:
        """Return the log of a job, at the ``place`` that it has once picked.

        Raises as :meth:`open`.
        """
        kept = self.place(key) if place is None else place
        generations = None
        if not is_folder(kept):
            first = replace(key, generation=0)
            name = first.id if is_at_api(kept) else first.path.name
            generations = self.open(f"{kept.rpartition('/')[0]}/{name}")
        return StorageLog(self.open(kept), key, redact=redact, generations=generations)

    def newest_generation(self, key: JobKey) -> int:
        """Return a task instance's newest generation, 0 before the first.

        ``key.generation`` is ignored. Raises :class:`JobLogError` when the root cannot be read.
        """
        first = replace(key, generation=0)
        with reachable(first, self.address):
            if self.folder is not None:
                names = _folders(self.folder / key.base)
            else:
                names = [entry.name for entry in self.open(self.place(first)).entries("")]
        numbers = (re.fullmatch(r"g([0-9]+)", name) for name in names)
        return max((int(number[1]) for number in numbers if number), default=0)

    def trainer_token(self, key: JobKey) -> str:
        """Return the secret by which a job's trainers reach its log at the API."""
        return issue(self.secret, key.id, Role.TRAINER, _TRAINER_S)


def _folders(base: Path) -> list[str]:
    """Return the names of the folders in a folder, none without it. Raises ``OSError``.

    ``Path.glob`` would not do: from Python 3.13 on it is silent about a folder it cannot read.
    """
    try:
        return [path.name for path in base.iterdir() if path.is_dir()]
    except FileNotFoundError:
        return []
