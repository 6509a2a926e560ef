"""A trainer without PyTorch that saves under the product's lease and ends where it is told to.

It trains until the file ``goal`` in its place tells a cursor, and stops exactly there; what it
saves takes ``--upload-s`` to write. For its whole life it holds a lock in its place: one that finds
it held by another living trainer, or that resumes from other content than it asked for, writes that
down in ``wrong``. A file of each trainer says to which step it came.
"""

import argparse
import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from airflow_ett.checkpoints import Checkpoint, FileDigest
from airflow_ett.checkpoints.manifest import digest_file
from airflow_ett.trainer import Session, checkpointer
from airflow_ett.trainer.shards import Taken

STEP_S, SAVE_EVERY_S = 0.05, 0.7

parser = argparse.ArgumentParser()
parser.add_argument("--place", type=Path, required=True)
parser.add_argument("--upload-s", type=float, default=0.25)
options = parser.parse_args()
place: Path = options.place


class Position:
    """All of the training's state."""

    step = 0


class Files:
    """In place of torch's shards: one file with the position, written beside the training."""

    def __init__(
        self, ranks: Any, objects: Mapping[str, Any], before_step: Callable[[], None]
    ) -> None:
        self._position: Position = objects["position"]
        self.own = self

    def take(self, folder: Path, *, copy: bool, beside: bool, more: Mapping[str, bytes]) -> Taken:
        """Take the present position; what writes it is slow."""
        return Taken(partial(_write, folder, self._position.step), None)

    def load(self, checkpoint: Checkpoint, *, weights_only: bool = False) -> None:
        """Take the position over."""
        self._position.step = json.loads((checkpoint.path / "position.json").read_text())

    def put_back_random(self) -> None:
        """There are no random numbers."""

    def close(self) -> None:
        """There is nothing to free."""


def _write(folder: Path, step: int) -> Mapping[str, FileDigest]:
    folder.mkdir(parents=True)
    path = folder / "position.json"
    with path.open("w") as file:
        json.dump(step, file)
        file.flush()
        os.fsync(file.fileno())
    time.sleep(options.upload_s)
    return {path.name: digest_file(path)}


def tell(name: str, *words: object) -> None:
    """Add a line to a file of the place."""
    with (place / name).open("a") as file:
        file.write(" ".join(map(str, (os.getpid(), time.time_ns(), *words))) + "\n")


def be_alone() -> int:
    """Take the lock, or write down who lives beside this trainer; return what keeps it."""
    handle = os.open(place / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(handle, 0)
        os.pwrite(handle, str(os.getpid()).encode(), 0)
    except BlockingIOError:
        tell("wrong", "overlaps with", os.pread(handle, 20, 0).decode())
    return handle


def steps(position: Position) -> Iterator[int]:
    """Yield steps up to the goal, without an end where there is none yet."""
    goal = place / "goal"
    while not goal.exists() or position.step < int(goal.read_text()):
        yield position.step


setattr(checkpointer, "Shards", Files)  # noqa: B010 - a type of another name

place.mkdir(parents=True, exist_ok=True)
lock = be_alone()
trained = os.open(place / f"trained-{os.getpid()}", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC)
with Session() as ett:
    position = Position()
    saver = ett.checkpointer(every_s=SAVE_EVERY_S, position=position)
    start = saver.restore()
    tell("starts", ett.attempt, start)
    print("trains from", start, flush=True)
    if position.step != start:
        tell("wrong", "resumed at", start, "with the content of", position.step)
    for step in ett.track(steps(position), cursor=start):
        time.sleep(STEP_S)
        position.step = step + 1
        ett.step(step + 1 - start)
        os.pwrite(trained, f"{step + 1:12}".encode(), 0)
