"""Which checkpoint a trainer starts from."""

from __future__ import annotations

import os

from airflow_ett import checkpoints
from airflow_ett.checkpoints import Checkpoint
from airflow_ett.errors import CheckpointError, EttError
from airflow_ett.events import JobContext


def choose(context: JobContext) -> tuple[Checkpoint, bool] | CheckpointError | None:
    """Return the checkpoint to load and whether only its weights count; None for a fresh start.

    The job's own newest verified checkpoint goes before everything: ``resume`` says where a job
    begins, not where its later attempts go on. Then ``auto`` takes what a former generation left,
    a URI that checkpoint, ``never`` none; failing those, ``init_from`` gives weights only. But
    where the launcher saw a checkpoint of the job and none is left, nothing starts anew.

    An error is returned, not raised, so that it reaches every rank.
    """
    try:
        own = checkpoints.newest_verified(context.checkpoints)
        if own is not None:
            return own, False
        if context.resume_cursor > 0:
            return _gone(context)
        start = {"auto": context.inherit, "never": None}.get(context.resume, context.resume)
        if start is not None:
            return _verified(start), False
        if context.init_from is not None:
            return _verified(context.init_from), True
        return None
    except (EttError, OSError) as error:
        return CheckpointError(f"job {context.key} cannot resume: {error}")


def _gone(context: JobContext) -> CheckpointError:
    return CheckpointError(
        f"job {context.key} cannot resume: the launcher saw a checkpoint at cursor "
        f"{context.resume_cursor} in {context.checkpoints}, but no intact one is there now: is "
        f"the folder mounted on {os.uname().nodename}? Make it readable there and clear the task; "
        "to train from the beginning instead, start a new run"
    )


def _verified(uri: str) -> Checkpoint:
    found = checkpoints.open_checkpoint(uri)
    checkpoints.verify(found)
    return found
