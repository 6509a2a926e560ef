"""How TorchX reads what a replica prints, for schedulers of ours."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Protocol

from torchx.schedulers.api import Stream, filter_regex

from airflow_ett.launch.schedulers import logs
from airflow_ett.launch.status import SchedulerStatus


class _Scheduler(Protocol):
    backend: str

    def detail(self, app_id: str) -> SchedulerStatus | None: ...

    def output(self, app_id: str, role: str, replica: int) -> logs.Output: ...


class Outputs:
    """A part of a TorchX scheduler that has ``detail`` and ``output``."""

    def log_iter(
        self: _Scheduler,
        app_id: str,
        role_name: str,
        k: int = 0,
        regex: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        should_tail: bool = False,
        streams: Stream | None = None,
    ) -> Iterable[str]:
        """Yield a replica's lines; ``should_tail`` goes on until the app has ended.

        stdout and stderr are kept together, so only both can be had. Times are ignored.
        """
        if streams not in (None, Stream.COMBINED):
            raise ValueError(
                f"{self.backend} keeps stdout and stderr in one; ask for Stream.COMBINED"
            )

        def over() -> bool:
            detail = self.detail(app_id) if should_tail else None
            return detail is None or detail.terminal

        lines: Iterable[str] = logs.follow(self.output(app_id, role_name, k), over)
        return filter_regex(regex, lines) if regex else lines
