"""What went wrong with a save, in one line, out of what torch raises."""

from __future__ import annotations

import errno
from collections.abc import Iterator

from airflow_ett.errors import CheckpointError


class ChangedError(CheckpointError):
    """A state changed while it was copied: it is lost, and the next one is copied at once."""


_FULL = (errno.ENOSPC, errno.EDQUOT)


def is_failure(error: BaseException) -> bool:
    """Whether it says that something failed, torch's CheckpointException included."""
    return isinstance(error, Exception) or type(error).__name__ == "CheckpointException"


def reason(error: BaseException) -> str:
    """Return what happened, on which ranks; torch's own text is a traceback of each of them."""
    failures = getattr(error, "failures", None)
    if not failures:
        return f"{type(error).__name__}: {error}"
    return "; ".join(f"rank {rank}: {reason(cause)}" for rank, (cause, _) in failures.items())


def is_change(error: BaseException) -> bool:
    """Whether a state has changed while it was copied, on whichever rank."""
    return any(isinstance(cause, ChangedError) for cause in _causes(error))


def is_full(error: BaseException) -> bool:
    """Whether a disk, or what a user may have of it, is full."""
    return any(isinstance(cause, OSError) and cause.errno in _FULL for cause in _causes(error))


def _causes(error: BaseException) -> Iterator[BaseException]:
    yield error
    for cause, _ in getattr(error, "failures", {}).values():
        yield from _causes(cause)
    if error.__cause__ is not None:
        yield from _causes(error.__cause__)
