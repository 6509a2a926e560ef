"""What ranks say to each other at the start of the DLRM example: the lean way and the usual one.

Usual: a group for each pair of ranks, made whether it will be used or not, and a gather for each
table of where it lies. Lean: one broadcast of the plan, and groups when they are first used. The
ranks are processes of this host that talk by gloo; all have joined each other before the clock
starts. What is put off is shown, too: the first use of a pair's group. Takes ten seconds.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import time
from collections.abc import Callable
from statistics import median
from typing import Any, NamedTuple

import torch.distributed as dist
from report import Target, publish_table
from torch.distributed import distributed_c10d

from airflow_ett.examples.dlrm import chatty
from airflow_ett.trainer.communication import Groups, ShardPlan, join, leave, share

TABLES = 64
ROWS = [1000 * (1 + table % 7) for table in range(TABLES)]
RUNS = 7
COLLECTIVES = ("all_gather", "all_reduce", "barrier", "broadcast", "gather")


class Start(NamedTuple):
    """What the start cost; ``first_use`` is what a group costs later. Both in seconds."""

    took: float
    collectives: int
    groups: int
    first_use: float | None
    plan: ShardPlan


def lean(rank: int, world: int) -> ShardPlan:
    """Agree on a plan as the example does."""
    return share(ROWS, ShardPlan.greedy(ROWS, world).owners if rank == 0 else None)


def usual(rank: int, world: int) -> ShardPlan:
    """Agree on a plan as it does without the lever."""
    chatty.make_groups(world)
    return chatty.gather_plan(ROWS, rank, world)


WAYS: dict[str, Callable[[int, int], ShardPlan]] = {"usual": usual, "lean": lean}


def count_calls(names: tuple[str, ...]) -> list[str]:
    """Return a list to which each call of these functions of torch's adds its name."""
    calls: list[str] = []

    def counted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            calls.append(name)
            return function(*args, **kwargs)

        return call

    for name in names:
        wrapped = counted(name, getattr(distributed_c10d, name))
        for module in (distributed_c10d, dist):
            setattr(module, name, wrapped)
    return calls


def measure(way: str, rank: int, world: int, port: int, told: Any) -> None:
    """Be one rank; the first one tells what it found."""
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    os.environ |= where | {"RANK": str(rank), "WORLD_SIZE": str(world)}
    join()
    dist.barrier()
    calls = count_calls((*COLLECTIVES, "new_group"))
    began = time.perf_counter()
    plan = WAYS[way](rank, world)
    took = time.perf_counter() - began
    groups = calls.count("new_group")
    collectives = len(calls) - groups
    first_use = None
    if way == "lean" and rank < 2 < world:
        began = time.perf_counter()
        Groups().of((0, 1))
        first_use = time.perf_counter() - began
    if rank == 0:
        told.put(Start(took, collectives, groups, first_use, plan))
    dist.barrier()
    leave()


def run(way: str, world: int) -> Start:
    """Start all ranks and return what the first one tells."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    spawn = multiprocessing.get_context("fork")
    told = spawn.SimpleQueue()
    ranks = [
        spawn.Process(target=measure, args=(way, rank, world, port, told)) for rank in range(world)
    ]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
        if rank.exitcode:
            raise RuntimeError(f"a rank ended with {rank.exitcode}")
    found: Start = told.get()
    return found


def main() -> None:
    """Measure both ways with 2 and with 4 ranks, in turn."""
    rows: dict[str, list[float | None]] = {}
    targets = []
    for world in (2, 4):
        runs: dict[str, list[Start]] = {way: [] for way in WAYS}
        for _ in range(RUNS):
            for way, starts in runs.items():
                starts.append(run(way, world))
        if len({start.plan for starts in runs.values() for start in starts}) != 1:
            raise RuntimeError("both ways must come to the same plan")
        ms = {way: 1000 * median(one.took for one in starts) for way, starts in runs.items()}
        for way, starts in runs.items():
            uses = [1000 * one.first_use for one in starts if one.first_use is not None]
            one = starts[0]
            later = median(uses) if uses else None
            rows[f"{world} ranks, {way}"] = [ms[way], one.collectives, one.groups, later]
        ratio = ms["usual"] / ms["lean"]
        targets.append(Target(f"{world} ranks, times shorter", ratio, "x", 10, at_least=True))
        targets.append(
            Target(f"{world} ranks, lean collectives", runs["lean"][0].collectives, "", 1)
        )
    columns = ("ms", "collectives", "groups made", "a pair's group later, ms")
    publish_table("communication", columns, rows, targets)


if __name__ == "__main__":
    main()
