"""Failures on demand, to see a training recover from them."""

from __future__ import annotations

import argparse
import os
import signal
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from airflow_ett.errors import EttError


class InjectedFailure(EttError):
    """The error that ``--inject SUBMISSION:raise:CURSOR`` asked for."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Fail by ``how`` in this submission as soon as the cursor reaches ``cursor``."""

    submission: int
    how: Literal["raise", "kill"]
    cursor: int


def parse_faults(text: str) -> list[Fault]:
    """Return the faults in a comma-separated list of ``SUBMISSION:raise|kill:CURSOR``."""
    return [_parse_fault(part) for part in text.split(",") if part]


def _parse_fault(text: str) -> Fault:
    submission, _, rest = text.partition(":")
    how, _, cursor = rest.partition(":")
    if not (submission.isdecimal() and cursor.isdecimal()) or how not in ("raise", "kill"):
        raise argparse.ArgumentTypeError(f"{text!r} is not SUBMISSION:raise|kill:CURSOR")
    return Fault(int(submission), "raise" if how == "raise" else "kill", int(cursor))


def strike(faults: Iterable[Fault], submission: int, before: int, cursor: int) -> None:
    """Fail if a fault of this submission lies after ``before`` and not after ``cursor``."""
    for fault in faults:
        if fault.submission == submission and before < fault.cursor <= cursor:
            if fault.how == "kill":
                print(f"injected: SIGKILL at cursor {cursor}", flush=True)
                os.kill(os.getpid(), signal.SIGKILL)
            raise InjectedFailure(f"injected failure in submission {submission}, cursor {cursor}")
