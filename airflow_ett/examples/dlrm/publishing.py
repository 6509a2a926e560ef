"""Publishing within the trainer, as is often done: the GPUs wait for it."""

from __future__ import annotations

import os
import time
from pathlib import Path

from airflow_ett.examples.dlrm.model import SIZES_VARIABLE, Sizes
from airflow_ett.trainer import Session

FACTORY = "airflow_ett.examples.dlrm.model:build"
NAME = "dlrm"


def publish(ett: Session, sizes: Sizes, registry: Path, at_least_s: float) -> None:
    """Publish the model as it is now; all ranks call it. A slow registry takes its time."""
    os.environ[SIZES_VARIABLE] = sizes.tell()  # the factory is called in another process
    told = ett.publish(model=FACTORY, registry=str(registry.absolute()), name=NAME)
    if told is None:
        return
    left_s = at_least_s - (told["end_ns"] - told["begin_ns"]) / 1e9
    if left_s > 0:
        with ett.phase("publish"):
            time.sleep(left_s)
