"""What the command line's words mean: instants, windows, changes."""

from __future__ import annotations

import argparse
import re
from datetime import UTC, datetime, timedelta
from fractions import Fraction

from airflow_ett.errors import ConfigurationError
from airflow_ett.metric.plans.whatif import Overlap, Reduce

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_CUT = re.compile(r"(.+)=(\d+(?:\.\d+)?)(%|s)", re.ASCII)


def instant(text: str) -> int:
    """Return the UTC nanoseconds of an ISO 8601 time (without a zone UTC), or of plain digits."""
    if text.isdecimal():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise _wrong(text, "an ISO 8601 time, or nanoseconds since 1970") from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(microseconds=1) * 1000


def window(text: str) -> tuple[int, int]:
    """Return begin and end of ``FROM/TO`` in UTC nanoseconds."""
    begin, _, end = text.partition("/")
    times = instant(begin), instant(end)
    if times[0] >= times[1]:
        raise _wrong(text, "FROM/TO with FROM before TO")
    return times


def reduction(text: str) -> Reduce:
    """Return the change of ``PHASE=50%`` or ``PHASE=30s``."""
    match = _CUT.fullmatch(text)
    if match is None:
        raise _wrong(text, "PHASE=N% or PHASE=Ns, such as compile=50% or first_batch=30s")
    phase, number, unit = match.groups()
    amount = Fraction(number)
    try:
        if unit == "%":
            return Reduce(phase, share=amount / 100)
        return Reduce(phase, ns=int(amount * 1_000_000_000))
    except ConfigurationError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def overlap(text: str) -> Overlap:
    """Return the change of ``PHASE,PHASE``."""
    try:
        return Overlap(tuple(text.split(",")))
    except ConfigurationError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _wrong(text: str, wanted: str) -> argparse.ArgumentTypeError:
    return argparse.ArgumentTypeError(f"{text!r} is not {wanted}")
