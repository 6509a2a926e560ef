"""What the Dag tab's address asks for, and the addresses of its other views. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from airflow_ett.ui.clock import Clock
from airflow_ett.ui.dag.period import CUSTOM, PERIODS, Period, period_of


@dataclass(frozen=True, slots=True)
class Asked:
    """The parameters as the address has them."""

    period: str = ""
    since: str = ""
    until: str = ""
    task: str = ""
    clock: str = ""
    rows: str = ""


@dataclass(frozen=True, slots=True)
class Filters:
    """A view of the tab: of a period, one task or all (None), on the clock from submission or of
    held time alone, with ``every`` row or the first ones."""

    period: Period = PERIODS[0]
    task: str | None = None
    held: bool = False
    every: bool = False

    def query(self) -> dict[str, str]:
        """Return the parameters of its address, what is the default left out."""
        said: dict[str, Any] = {
            "period": self.period.key if self.period != PERIODS[0] else None,
            "since": self.period.since,
            "until": self.period.until,
            "task": self.task,
            "clock": "held" if self.held else None,
            "rows": "all" if self.every else None,
        }
        return {name: str(value) for name, value in said.items() if value is not None}

    def href(self, **changes: Any) -> str:
        """Return the address of the view with ``changes``, relative to the tab's own."""
        return f"?{urlencode(replace(self, **changes).query())}"

    @property
    def custom(self) -> bool:
        """True where the period is one of dates."""
        return self.period.key == CUSTOM.key


def filters_of(asked: Asked, tasks: Collection[str], *, now_ns: int, clock: Clock) -> Filters:
    """Return the view that is asked for; the default in place of all that there is not."""
    period = period_of(asked.period, asked.since, asked.until, now_ns=now_ns, clock=clock)
    return Filters(
        period=period,
        task=asked.task if len(tasks) > 1 and asked.task in tasks else None,
        held=asked.clock == "held",
        every=asked.rows == "all",
    )
