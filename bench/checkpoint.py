"""What a save costs the training: dcp.save, torch.save, and ours, all with the files synced.

``python bench/checkpoint.py 0.25 1 4`` takes sizes in GiB. A state is half weights, half an
optimizer's momentum. All ways save it in turn, several rounds; the median of the second and later
ones counts, since the first one allocates. ``blocking`` is how long the training waits, ``wall``
until the checkpoint can be loaded: ours then has digests of all files, a manifest and a marker.
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch
import torch.distributed.checkpoint as dcp
from report import FOLDER, Target, publish_table
from torch.distributed.checkpoint.state_dict import get_model_state_dict, get_optimizer_state_dict

from airflow_ett.config import JOB_VARIABLE
from airflow_ett.events import JobContext, JobKey
from airflow_ett.trainer import Session

GIB = 1 << 30
SAVES = 5
TENSORS = 16
COLUMNS = ("blocking s", "wall s", "MB/s", "first blocking s")
LEAST_LESS = 90.0


class Save(NamedTuple):
    """One save, in seconds."""

    blocking_s: float
    wall_s: float


class Training:
    """A model and its optimizer of ``size`` bytes together."""

    def __init__(self, size: int) -> None:
        columns = 1024
        rows = size // 2 // 4 // TENSORS // columns
        self.model = torch.nn.ParameterList(torch.ones(rows, columns) for _ in range(TENSORS))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.0, momentum=0.9)
        for parameter in self.model.parameters():
            state = self.optimizer.state[parameter]
            state["momentum_buffer"] = torch.ones_like(parameter)

    @property
    def state(self) -> dict[str, Any]:
        return {
            "model": get_model_state_dict(self.model),
            "optimizer": get_optimizer_state_dict(self.model, self.optimizer),
        }


def synchronous(training: Training, save: Callable[[Training, Path], None]) -> Iterator[Save]:
    """Save with ``save``, which returns when all is durable; two are kept, as ours keeps them."""
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        for number in range(SAVES):
            begun = time.perf_counter()
            save(training, Path(folder, str(number)))
            length = time.perf_counter() - begun
            yield Save(length, length)
            shutil.rmtree(Path(folder, str(number - 2)), ignore_errors=True)


def torch_save(training: Training, folder: Path) -> None:
    folder.mkdir()
    with (folder / "state.pt").open("wb") as file:
        torch.save(training.state, file)
        file.flush()
        os.fsync(file.fileno())


def dcp_save(training: Training, folder: Path) -> None:
    dcp.save(training.state, storage_writer=dcp.FileSystemWriter(folder), no_dist=True)


def ours(training: Training) -> Iterator[Save]:
    """Save through a Session, beside the training."""
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        run = str(Path(folder).resolve())
        key = JobKey("bench", "dag", "run", "train")
        os.environ[JOB_VARIABLE] = JobContext(key, 1, run, f"{run}/c", 1).encode()
        with Session() as ett:
            saver: Any = ett.checkpointer(
                model=training.model, optimizer=training.optimizer, every_s=None
            )
            saver.restore()
            for number in ett.track(range(1, SAVES + 1), cursor=0):
                ett.step(number)
                begun = time.perf_counter()
                saver.save()
                blocking_s = time.perf_counter() - begun
                saver.join()
                yield Save(blocking_s, time.perf_counter() - begun)
        del os.environ[JOB_VARIABLE]


def measure(size: int) -> dict[str, list[float]]:
    """Save a state of this size in all ways, in turn."""
    training = Training(size)
    ways = {
        "dcp.save": synchronous(training, dcp_save),
        "torch.save": synchronous(training, torch_save),
        "ours": ours(training),
    }
    rounds = list(zip(*ways.values(), strict=True))
    rows = {}
    for way, (first, *later) in zip(ways, zip(*rounds, strict=True), strict=True):
        blocking_s, wall_s = (median(values) for values in zip(*later, strict=True))
        rows[way] = [blocking_s, wall_s, size / wall_s / 1e6, first.blocking_s]
    return rows


def main() -> None:
    """Measure all sizes that fit, and publish."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("gib", type=float, nargs="*", default=[0.25, 1.0], help="sizes, GiB")
    logging.disable(logging.WARNING)
    FOLDER.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    rows: dict[str, list[float]] = {}
    targets = []
    for gib in parser.parse_args().gib:
        size = int(gib * GIB)
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        if shutil.disk_usage(FOLDER).free < 8 * size or memory < 4 * size:
            print(f"{gib:g} GiB is left out: it needs 8 x as much disk and 4 x memory here")
            continue
        ways = measure(size)
        rows |= {f"{gib:g} GiB, {way}": row for way, row in ways.items()}
        less = 100 * (1 - ways["ours"][0] / ways["dcp.save"][0])
        name = f"{gib:g} GiB: less blocking than dcp.save"
        targets.append(Target(name, less, "%", LEAST_LESS, at_least=True))
    publish_table("checkpoint", COLUMNS, rows, targets)


if __name__ == "__main__":
    main()
