"""A trainer with PyTorch that learns nothing: it saves the example's ranker, step by step.

It trains to the cursor that it is told, and until the file ``end`` is in its place, if it has one.
"""

import argparse
import time
from collections.abc import Iterator
from pathlib import Path

from airflow_ett.examples.ranker.model import build
from airflow_ett.trainer import Session

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, required=True)
parser.add_argument("--every-s", type=float)
parser.add_argument("--until", type=Path)
options = parser.parse_args()


def steps(position: int) -> Iterator[int]:
    """Yield steps up to the last one."""
    while position < options.steps or (options.until and not options.until.exists()):
        yield position
        position += 1


with Session() as ett:
    model = build()
    saver = ett.checkpointer(every_s=options.every_s, model=model)
    start = saver.restore()
    for step in ett.track(steps(start), cursor=start):
        time.sleep(0.05)
        ett.step(step + 1 - start)
