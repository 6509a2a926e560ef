"""What a save costs the training: dcp.save, torch.save, and ours, all with the files synced.

``python bench/checkpoint.py 0.25 1 4`` takes sizes in GiB. A state is half weights, half an
optimizer's momentum, and all ways save it in turn in the same loop of real steps: a forward and a
backward pass, then the optimizer. Their length is printed; with a batch of 16 rows, each weight is
used 16 times, far less than a training does, so it is about the shortest that such a model can
have. The median of the second and later rounds counts, since the first one allocates.

- ``blocking``: how long the training waits, in the call of the save and in the optimizer, whose
  next step waits for what is still to be copied. A loop saves after a step, so that a pass lies
  between the two; ``no pass`` is the worst case, in which the optimizer steps at once.
- ``delay``: by how much the loop comes later, until the checkpoint can be loaded, than without a
  save: that is the blocking, and how much slower the steps are beside the copy and the upload.
- ``wall``: until the checkpoint can be loaded: ours then has digests of all files, a manifest and
  a marker.
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
BATCH = 16
COLUMNS = ("blocking s", "delay s", "wall s", "MB/s", "first blocking s")
LEAST_LESS = 90.0


class Save(NamedTuple):
    """One save, in seconds."""

    blocking_s: float
    delay_s: float
    wall_s: float


class Training:
    """A model and its optimizer of ``size`` bytes together."""

    def __init__(self, size: int) -> None:
        columns = 1024
        rows = size // 2 // 4 // TENSORS // columns
        self.model = torch.nn.ParameterList(torch.ones(rows, columns) for _ in range(TENSORS))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.0, momentum=0.9)
        self.batch = torch.ones(BATCH, columns)
        self.steps: list[float] = []
        """The lengths of the steps without a save, in seconds."""

    @property
    def step_s(self) -> float:
        """The median step without a save."""
        return median(self.steps)

    def step(self) -> None:
        """Run forward and backward, then the optimizer."""
        self.optimizer.zero_grad()
        for weights in self.model:
            (self.batch @ weights.T).mean().backward()
        self.optimizer.step()

    def step_alone(self) -> None:
        """Do a step beside which nothing is saved."""
        begun = time.perf_counter()
        self.step()
        self.steps.append(time.perf_counter() - begun)

    @property
    def state(self) -> dict[str, Any]:
        return {
            "model": get_model_state_dict(self.model),
            "optimizer": get_optimizer_state_dict(self.model, self.optimizer),
        }


def synchronous(
    training: Training, save: Callable[[Training, Path], None]
) -> Iterator[tuple[Save, ...]]:
    """Save with ``save``, which returns when all is durable; two are kept, as ours keeps them."""
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        for number in range(SAVES):
            training.step_alone()
            begun = time.perf_counter()
            save(training, Path(folder, str(number)))
            length = time.perf_counter() - begun
            yield (Save(length, length, length),)
            shutil.rmtree(Path(folder, str(number - 2)), ignore_errors=True)


def torch_save(training: Training, folder: Path) -> None:
    folder.mkdir()
    with (folder / "state.pt").open("wb") as file:
        torch.save(training.state, file)
        file.flush()
        os.fsync(file.fileno())


def dcp_save(training: Training, folder: Path) -> None:
    dcp.save(training.state, storage_writer=dcp.FileSystemWriter(folder))


def ours(training: Training) -> Iterator[tuple[Save, ...]]:
    """Save through a Session, beside the training: after a step, and then with no pass between."""
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        run = str(Path(folder).resolve())
        key = JobKey("bench", "dag", "run", "train")
        os.environ[JOB_VARIABLE] = JobContext(key, 1, run, f"{run}/c", 1).encode()
        at: list[float] = []
        training.optimizer.register_step_pre_hook(lambda *_: at.append(time.perf_counter()))
        with Session() as ett:
            saver: Any = ett.checkpointer(
                model=training.model, optimizer=training.optimizer, every_s=None
            )
            training.optimizer.register_step_pre_hook(lambda *_: at.append(time.perf_counter()))
            saver.restore()
            both: list[Save] = []
            for number in ett.track(range(1, 2 * SAVES + 1), cursor=0):
                training.step_alone()
                ett.step(number)
                at.clear()
                both.append(_save(training, saver, at, no_pass=bool(both)))
                if len(both) == 2:
                    yield tuple(both)
                    both.clear()
        del os.environ[JOB_VARIABLE]


def _save(training: Training, saver: Any, at: list[float], *, no_pass: bool) -> Save:
    """Save, and train until all is durable; ``at``: when the optimizer's first hooks are called."""
    begun = time.perf_counter()
    saver.save()
    called_s = time.perf_counter() - begun
    expected_s = 0.0
    if no_pass:
        stepped = time.perf_counter()
        training.optimizer.step()
        expected_s += time.perf_counter() - stepped - (at[1] - at[0])
    while not saver.join(timeout=0.0):
        training.step()
        expected_s += training.step_s
    wall_s = time.perf_counter() - begun
    if not at:
        training.step()
        expected_s += training.step_s
        wall_s = time.perf_counter() - begun
    return Save(called_s + at[1] - at[0], wall_s - expected_s, wall_s)


def measure(size: int) -> dict[str, list[float]]:
    """Save a state of this size in all ways, in turn."""
    training = Training(size)
    training.step_alone()
    training.steps.clear()  # it has allocated
    ways = {
        ("dcp.save",): synchronous(training, dcp_save),
        ("torch.save",): synchronous(training, torch_save),
        ("ours", "ours, no pass"): ours(training),
    }
    rows = {}
    rounds = list(zip(*ways.values(), strict=True))
    names = [name for several in ways for name in several]
    saves = [[save for way in one for save in way] for one in rounds]
    for way, (first, *later) in zip(names, zip(*saves, strict=True), strict=True):
        blocking_s, delay_s, wall_s = (median(values) for values in zip(*later, strict=True))
        rows[way] = [blocking_s, delay_s, wall_s, size / wall_s / 1e6, first.blocking_s]
    print(f"{size / GIB:g} GiB: a step takes {training.step_s:.2f} s")
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
