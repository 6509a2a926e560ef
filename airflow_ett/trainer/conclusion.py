"""The end of a Session: what is saved then, and what became of the training."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from airflow_ett.trainer.failure import is_failure
from airflow_ett.trainer.termination import Termination

if TYPE_CHECKING:
    from airflow_ett.trainer.checkpointer import Checkpointer


def conclude(
    error: BaseException | None,
    saver: Checkpointer | None,
    termination: Termination,
    *,
    preempted: bool,
    grace_s: float | None,
    tell: Callable[[BaseException], None],
) -> str:
    """Save what is to be saved after the block ended with ``error``; return the outcome.

    ``tell`` is called with a failure. Raises what the last save raises.
    """
    exits = isinstance(error, SystemExit) and termination.received_ns is not None
    if exits or (error is not None and is_failure(error)):
        # Where in a step it came is not known, so the present state is not one to save.
        if error is not None and not exits:
            tell(error)
        if saver is not None:
            saver.join(timeout=grace_s)
        return "preempted" if exits else "error"
    bereaved = termination.bereaved()
    if saver is not None and not saver.solo and bereaved:
        saver.join(timeout=max(0.0, bereaved.grace_s - 1.0))  # it may have had its share
    elif saver is not None and preempted:
        saver.leave_last()
    elif saver is not None:
        saver.leave_anchor()
    return "preempted" if preempted else "success"
