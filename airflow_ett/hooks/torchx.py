"""The ``torchx`` connection: where trainings of this Airflow run and where their files live."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from airflow.sdk.bases.hook import BaseHook

from airflow_ett import config
from airflow_ett.errors import ConfigurationError

DEFAULT_SCHEDULER = "local_detached"


class TorchXHook(BaseHook):
    """Reads a ``torchx`` connection; without one, the ``[ett]`` options alone decide.

    Extra fields: ``scheduler`` and ``cfg`` (a TorchX scheduler and its options, the defaults of the
    operator's parameters of the same names), ``checkpoint_root``.
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
            if not isinstance(self._extra.get("cfg", {}), dict):
                raise ConfigurationError(
                    "torchx_conn_id", f"extra field cfg of {torchx_conn_id!r} is not a JSON object"
                )

    @property
    def scheduler(self) -> str:
        """The TorchX scheduler of tasks that name none."""
        return str(self._extra.get("scheduler") or DEFAULT_SCHEDULER)

    @property
    def cfg(self) -> dict[str, Any]:
        """Scheduler options that a task's own ``cfg`` is laid over."""
        return dict(self._extra.get("cfg") or {})

    @property
    def checkpoint_root(self) -> str:
        """Where checkpoints go, or '' for the run directory."""
        return str(self._extra.get("checkpoint_root") or self.settings.checkpoint_root)
