"""The ``torchx`` connection: where trainings of this Airflow run and where their files live."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from airflow.sdk.bases.hook import BaseHook

from airflow_ett import config
from airflow_ett.checkpoints import folder
from airflow_ett.errors import ConfigurationError, EttError
from airflow_ett.events import JobKey
from airflow_ett.hooks.deployment import check_database
from airflow_ett.hooks.masking import redact
from airflow_ett.launch.root import Root

DEFAULT_SCHEDULER = "local_detached"

_ONE_MACHINE = "local_"

_NO_JOB = "ett-connection-test"
"""A name that no job has: asking for its log changes nothing."""


class TorchXHook(BaseHook):
    """Reads a ``torchx`` connection; without one, the ``[ett]`` options alone decide.

    Extra fields: ``scheduler`` and ``cfg`` (a TorchX scheduler and its options, the defaults of the
    operator's parameters of the same names; ``cfg`` may be JSON text), ``checkpoint_root``.
    """

    conn_name_attr: ClassVar[str] = "torchx_conn_id"
    default_conn_name: ClassVar[str] = "torchx_default"
    conn_type: ClassVar[str] = "torchx"
    hook_name: ClassVar[str] = "TorchX"

    def __init__(self, torchx_conn_id: str | None = None) -> None:
        super().__init__()
        self.settings = config.load()
        self._extra: Mapping[str, Any] = {}
        if torchx_conn_id:
            self._extra = self.get_connection(torchx_conn_id).extra_dejson
        self._cfg = _json_object(self._extra.get("cfg"), torchx_conn_id)

    @property
    def scheduler(self) -> str:
        """The TorchX scheduler of tasks that name none."""
        return str(self._extra.get("scheduler") or DEFAULT_SCHEDULER)

    @property
    def cfg(self) -> dict[str, Any]:
        """Scheduler options that a task's own ``cfg`` is laid over."""
        return dict(self._cfg)

    @property
    def checkpoint_root(self) -> str:
        """Where checkpoints go, or '' for the run directory."""
        return str(self._extra.get("checkpoint_root") or self.settings.checkpoint_root)

    def checkpoints_below(self, checkpoint_uri: str | None) -> str:
        """Return where a task's checkpoints go, or '' for the run directory.

        Raises :class:`ConfigurationError` where trainers share no run directory.
        """
        below, root = checkpoint_uri or self.checkpoint_root, Root.of(self.settings)
        if not below and root.folder is None:
            raise ConfigurationError(
                "checkpoint_uri",
                f"must be set, or [ett] checkpoint_root: {root.option} names no folder that could "
                "hold checkpoints. Name a folder that all nodes share, or a URI",
            )
        return below

    def test_connection(self) -> tuple[bool, str]:
        """Check scheduler, options and folders as this host sees them; nothing is submitted.

        Returns whether a training could be launched from here, and a sentence that says so or why
        not, free of secrets.
        """
        # Importing TorchX takes a while, which DAG parsing is spared.
        from airflow_ett.launch.gateway import Gateway

        gateway = Gateway()
        try:
            gateway.check(self.scheduler, self.cfg)
            self.check_deployment(self.scheduler)
            gateway.reach(self.scheduler, self.cfg)
            places = self._check_folders()
        except EttError as error:
            return False, f"{redact(str(error))} (tested on {socket.gethostname()})"
        text = f"{self.scheduler} answers and knows these options; {places}"
        return True, f"{redact(text)} (tested on {socket.gethostname()})"

    def check_deployment(self, scheduler: str) -> None:
        """Raise :class:`ConfigurationError` where trainings, or their numbers, would get lost.

        Two Airflows of the same name would adopt and cancel each other's trainings on a cluster.
        """
        check_database(self.settings)
        unnamed = self.settings.deployment == config.UNNAMED
        if unnamed and not scheduler.startswith(_ONE_MACHINE):
            raise ConfigurationError(
                "[ett] deployment",
                f"name this Airflow (production, staging, …) before it trains on {scheduler}: "
                f"another one called {config.UNNAMED} would take its trainings for its own",
            )

    def _check_folders(self) -> str:
        """Return where runs and checkpoints go, as text."""
        root = Root.of(self.settings)
        if root.folder is not None:
            _check_usable(root.option, root.folder)
        else:
            root.newest_generation(JobKey(self.settings.deployment, _NO_JOB, _NO_JOB, _NO_JOB))
        if self.settings.cache_root:
            _check_place("[ett] cache_root", self.settings.cache_root)
        if not self.checkpoints_below(None):
            return f"run directories and checkpoints go to {root.address}"
        checkpoints = _check_place("checkpoint_root", self.checkpoint_root)
        return f"job logs go to {root.address}, checkpoints to {checkpoints}"


def _json_object(value: Any, connection: str | None) -> Mapping[str, Any]:
    """Return a field that holds a JSON object, or the text of one, or nothing."""
    try:
        found = json.loads(value) if isinstance(value, str) and value else value or {}
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ConfigurationError(
            "torchx_conn_id", f"extra field cfg of {connection!r} is not a JSON object"
        )
    return found


def _check_place(name: str, text: str) -> str:
    """Return a folder's path or a URI; what lies behind a URI is not asked.

    Raises :class:`ConfigurationError` unless it can be used from here.
    """
    try:
        place = folder(text)
    except ConfigurationError as error:
        raise ConfigurationError(name, error.problem) from error
    if isinstance(place, Path):
        _check_usable(name, place)
    return str(place)


def _check_usable(name: str, folder: Path) -> None:
    """Raise :class:`ConfigurationError` unless the folder can be written here, or made."""
    try:
        nearest = next(path for path in (folder, *folder.parents) if path.exists())
        usable = nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)
    except OSError:
        usable = False
    if not usable:
        raise ConfigurationError(name, f"{folder} cannot be written, nor made, by this user")
