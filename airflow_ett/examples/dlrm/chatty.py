"""How trainers often talk at their start: here only to be compared with the lean way."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch.distributed as dist

from airflow_ett.trainer.communication import ShardPlan


def make_groups(world: int) -> list[Any]:
    """Make a group for each pair of ranks and one for all, whether they will be used or not."""
    sets = [*itertools.combinations(range(world), 2), range(world)]
    return [dist.new_group(list(ranks)) for ranks in sets]


def gather_plan(rows: Sequence[int], rank: int, world: int) -> ShardPlan:
    """Return a plan that each rank makes, and that all ask each other about, table by table."""
    plan = ShardPlan.greedy(rows, world)
    owners = []
    for table, owner in enumerate(plan.owners):
        told: list[Any] = [None] * world
        mine = {"table": table, "rows": rows[table]} if owner == rank else None
        dist.all_gather_object(told, mine)
        owners.append(next(other for other, one in enumerate(told) if one is not None))
    return ShardPlan(tuple(rows), tuple(owners))
