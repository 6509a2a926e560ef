"""How long a training waits for batches that are long made: handed over singly, and in parcels.

The DLRM example's loader, one worker process; the training between two batches is a busy wait that
takes longer than making one. Takes two minutes.
"""

from __future__ import annotations

import time
from itertools import islice
from statistics import mean, median

import torch
from report import Target, publish

from airflow_ett.examples.dlrm.data import AT_ONCE, Clicks, Order, Part, load, make_index
from airflow_ett.examples.dlrm.model import Sizes
from airflow_ett.trainer import Session

BATCHES, SKIPPED, SIZE, RUNS = 1500, 200, 512, 3
STEP_S = 0.005
SINGLY = "as the loader does"
PARCELS = (8, 16, AT_ONCE, 64)


def wait_ms(parcel: int | None) -> float:
    """Return how long a batch was waited for, at the mean."""
    order = Order(BATCHES * SIZE, SIZE)
    index, part = make_index(9, 0.0), Part(0, 1, range(Sizes().tables))
    loader = load(Clicks(Sizes(), part, order, index, cursor=0, seed=9, wait_s=0.0))
    batches = iter(Session().parcels(loader, parcel) if parcel else loader)
    waits = []
    for _ in islice(batches, SKIPPED):
        work()
    for _ in range(BATCHES - SKIPPED):
        began = time.perf_counter()
        next(batches)
        waits.append(time.perf_counter() - began)
        work()
    return 1000 * mean(waits)


def work() -> None:
    """Be busy for a step."""
    until = time.perf_counter() + STEP_S
    while time.perf_counter() < until:
        pass


def main() -> None:
    """Measure all of them in turn."""
    torch.set_num_threads(1)
    ways = {SINGLY: None} | {f"{parcel} in a parcel": parcel for parcel in PARCELS}
    runs: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(RUNS):
        for way, parcel in ways.items():
            runs[way].append(wait_ms(parcel))
    figures = {way: median(waits) for way, waits in runs.items()}
    ratio = figures[SINGLY] / figures[f"{AT_ONCE} in a parcel"]
    target = Target(f"{AT_ONCE} in a parcel, times shorter", ratio, "x", 8, at_least=True)
    publish("parcels", "ms a batch", figures, [target])


if __name__ == "__main__":
    main()
