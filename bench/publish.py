"""What it takes to publish a checkpoint of 4 GiB that two ranks have sharded: seconds and memory.

``--quick`` takes 128 MiB instead. The model is a table, an eighth of the whole and its largest
tensor, and layers; each rank has saved its half of every tensor's rows. The ways take turns, each
in a fresh process, until what it wrote is on the disk:

- ``dcp_to_torch_save``: torch's own way to one file, which is a pickle, neither checked nor tried.
- ``weights``: our file alone, as it is and with each cast; NaN is looked for.
- ``published``: all of ``python -m airflow_ett.publish`` into a folder: digests of the checkpoint's
  files, weights, a trial that loads and scores them in a process of its own, digest, reveal.

``peak`` is the process's own peak of resident memory; ``its trial`` that of the trial's, which maps
the weights' file, so that its pages count for as long as nobody else needs the memory.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import re
import resource
import shutil
import socket
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch
from report import FOLDER, Target, publish_table

from airflow_ett.checkpoints import commit, open_checkpoint
from airflow_ett.events import AttemptId
from airflow_ett.publish import Request, publish
from airflow_ett.publish.weights import write_weights

MIB = 1 << 20
SIZE_VARIABLE = "BENCH_PUBLISH_MIB"
COLUMNS = 1024
LAYERS = 28
RANKS = 2
ROUNDS = 3
ABOVE_MIB = 512


class Cost(NamedTuple):
    """What a way took: seconds, and peaks of memory in MiB."""

    seconds: float
    peak: float
    trial: float


class Model(torch.nn.Module):
    """A table and layers, all of them used for each score."""

    def __init__(self, mib: int) -> None:
        super().__init__()
        for name, rows in shapes(mib).items():
            self.register_parameter(name, torch.nn.Parameter(torch.empty(rows, COLUMNS)))

    def forward(self, ids: Any) -> Any:
        table, *layers = self.parameters()
        found = table[ids]
        return torch.stack([(found @ layer.T).mean(dim=1) for layer in layers]).mean(dim=0)


def shapes(mib: int) -> dict[str, int]:
    """Return the tensors' rows, the largest first."""
    rows = mib * MIB // 4 // COLUMNS
    return {"table": rows // 8} | {f"layer{n}": rows * 7 // 8 // LAYERS for n in range(LAYERS)}


def build() -> Model:
    return Model(int(os.environ[SIZE_VARIABLE]))


def example_batch() -> Any:
    return torch.arange(8)


def to_torch(checkpoint: str, target: Path) -> Path:
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

    dcp_to_torch_save(checkpoint, target)
    return target


def weights(cast: str | None) -> Callable[[str, Path], Path]:
    def write(checkpoint: str, target: Path) -> Path:
        write_weights(open_checkpoint(checkpoint), target, cast=cast)
        return target

    return write


def whole(checkpoint: str, target: Path) -> Path:
    made = publish(Request(checkpoint, "publish:build", str(target), "bench"))
    return Path(made.uri, "model.safetensors")


WAYS: dict[str, Callable[[str, Path], Path]] = {
    "dcp_to_torch_save": to_torch,
    "weights": weights(None),
    "weights, bfloat16": weights("bfloat16"),
    "weights, int8": weights("int8"),
    "published": whole,
}


def save(rank: int, port: int, mib: int, folder: str) -> None:
    """Be one rank: save half of each tensor."""
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.tensor import DTensor, Shard, init_device_mesh

    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    os.environ |= where | {"RANK": str(rank), "WORLD_SIZE": str(RANKS)}
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (RANKS,))
    torch.manual_seed(rank)
    model = {
        name: DTensor.from_local(torch.randn(rows // RANKS, COLUMNS), mesh, [Shard(0)])
        for name, rows in shapes(mib).items()
    }
    dcp.save({"model": model}, storage_writer=dcp.FileSystemWriter(folder))
    dist.destroy_process_group()


def measure(way: str, checkpoint: str, target: Path, told: Any) -> None:
    """Go one way in this process."""
    warnings.filterwarnings("ignore")
    logging.disable()
    begun = time.perf_counter()
    written = WAYS[way](checkpoint, target)
    handle = os.open(written, os.O_RDONLY)
    os.fsync(handle)
    seconds = time.perf_counter() - begun
    status = Path("/proc/self/status").read_text()
    peak = int(re.search(r"VmHWM:\s+(\d+)", status)[1])  # type: ignore[index]
    # At least what this process held when it began the trial.
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    told.put(Cost(seconds, peak / 1024, children / 1024))


def run(target: Callable[..., None], *arguments: tuple[Any, ...]) -> None:
    """Run a function in fresh processes beside each other, one for each list of arguments."""
    spawn = multiprocessing.get_context("spawn")
    processes = [spawn.Process(target=target, args=given) for given in arguments]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        if process.exitcode:
            raise RuntimeError(f"a process ended with {process.exitcode}")


def saved(folder: Path, mib: int) -> str:
    """Save a checkpoint of random weights by all ranks, and commit it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    run(save, *[(rank, port, mib, str(folder)) for rank in range(RANKS)])
    commit(folder, job="0" * 20, attempt=AttemptId(1, 0, 0), epoch=1, cursor=1)
    return str(folder)


def figures(costs: dict[str, list[Cost]], mib: int) -> tuple[dict[str, list[float | None]], Any]:
    """Return the table's rows, and what the memory must keep to."""
    rows: dict[str, list[float | None]] = {}
    targets = []
    most = max(shapes(mib).values()) * COLUMNS * 4 / MIB + ABOVE_MIB
    for way, found in costs.items():
        seconds, peak = median(cost.seconds for cost in found), max(cost.peak for cost in found)
        trial = max(cost.trial for cost in found) if way == "published" else None
        rows[way] = [seconds, mib * MIB / 1e6 / seconds, peak, trial]
        if way != "dcp_to_torch_save":
            targets.append(Target(f"{way}: peak", peak, "MiB", most))
    return rows, targets


def main() -> None:
    """Save the checkpoint, go all ways in turn, print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="128 MiB, once")
    quick = parser.parse_args().quick
    mib, rounds = (128, 1) if quick else (4096, ROUNDS)
    here = str(Path(__file__).resolve().parent)
    os.environ |= {SIZE_VARIABLE: str(mib), "PYTHONPATH": here}  # for the model's factory
    costs: dict[str, list[Cost]] = {way: [] for way in WAYS}
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER) as place:
        folder = Path(place).resolve()
        checkpoint = saved(folder / "checkpoint", mib)
        told = multiprocessing.get_context("spawn").SimpleQueue()
        for _ in range(rounds):
            for way, found in costs.items():
                os.sync()
                target = folder / "out"
                run(measure, (way, checkpoint, target, told))
                found.append(told.get())
                shutil.rmtree(target) if target.is_dir() else target.unlink()
    publish_table("publish", ("s", "MB/s", "peak MiB", "its trial MiB"), *figures(costs, mib))


if __name__ == "__main__":
    main()
