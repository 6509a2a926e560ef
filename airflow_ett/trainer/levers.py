"""Which levers of the trainer are on, and what became of each."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Literal

from airflow_ett.config import SWITCHES
from airflow_ett.events import Kind
from airflow_ett.trainer.journal import Journal

Outcome = Literal["used", "missed", "saved", "off", "unable"]

_TOLD = 500
"""So much of a reason is told, in characters: torch's own errors are pages long."""

_log = logging.getLogger("airflow_ett.trainer")


class Levers:
    """Asked by each lever before it works; hears from it what came of that.

    A lever that cannot work says why, and the training goes on without it.
    """

    def __init__(self, journal: Journal, environ: Mapping[str, str] = os.environ) -> None:
        self._journal = journal
        self._environ = environ

    def on(self, lever: str) -> bool:
        """Return whether a lever may work; one that is switched off is told of here."""
        variable = SWITCHES[lever]
        if self._environ.get(variable, "").strip() != "0":
            return True
        self.tell(lever, "off", f"{variable}=0")
        return False

    def tell(
        self,
        lever: str,
        outcome: Outcome,
        reason: str | None = None,
        *,
        duration_ns: int | None = None,
        size: int | None = None,
    ) -> None:
        """Record what came of a lever; ``reason`` says why in words, ``size`` is in bytes."""
        if reason and len(reason) > _TOLD:
            reason = f"{reason[:_TOLD]}…"
        data = {
            "lever": lever,
            "outcome": outcome,
            "reason": reason,
            "duration_ns": duration_ns,
            "bytes": size,
        }
        self._journal.emit(Kind.LEVER, {k: v for k, v in data.items() if v is not None})
        level = logging.WARNING if outcome == "unable" else logging.INFO
        _log.log(level, "%s: %s%s", lever, outcome, f" ({reason})" if reason else "")
