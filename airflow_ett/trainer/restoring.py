"""Which checkpoint a trainer starts from."""

from __future__ import annotations

from airflow_ett import checkpoints
from airflow_ett.checkpoints import Checkpoint
from airflow_ett.errors import CheckpointError, EttError
from airflow_ett.events import JobContext


def choose(context: JobContext) -> tuple[Checkpoint, bool] | CheckpointError | None:
    """Return the checkpoint to load and whether only its weights count; None for a fresh start.

    The job's own newest verified checkpoint goes before everything: ``resume`` says where a job
    begins, not where its later attempts go on. Then ``auto`` takes what a former generation left,
    a URI that checkpoint, ``never`` none; failing those, ``init_from`` gives weights only.

    An error is returned, not raised, so that it reaches every rank.
    """
    try:
        own = checkpoints.newest_verified(context.checkpoints)
        if own is not None:
            return own, False
        start = {"auto": context.inherit, "never": None}.get(context.resume, context.resume)
        if start is not None:
            return _verified(start), False
        if context.init_from is not None:
            return _verified(context.init_from), True
        return None
    except (EttError, OSError) as error:
        return CheckpointError(f"job {context.key} cannot resume: {error}")


def _verified(uri: str) -> Checkpoint:
    found = checkpoints.open_checkpoint(uri)
    checkpoints.verify(found)
    return found
