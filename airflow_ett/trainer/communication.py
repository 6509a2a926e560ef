"""Less communication at the start: groups made when first used, shards known from one broadcast.

``torch.distributed`` is imported when it is needed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_ett.errors import ConfigurationError


def join() -> tuple[int, int]:
    """Join the other ranks that the environment tells of, once; return rank and number of ranks.

    A training of one process joins nothing. The others talk by gloo on CPUs, by nccl on GPUs.
    """
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1:
        return 0, 1
    import torch.distributed as dist

    if not dist.is_initialized():
        dist.init_process_group()
    return dist.get_rank(), dist.get_world_size()


def leave() -> None:
    """End what :func:`join` began: groups that outlive the training may abort its process.

    After the Session's block: its last save needs them.
    """
    distributed: Any = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_initialized():
        distributed.destroy_process_group()


class Groups:
    """Process groups, each made when it is first asked for, and once for a set of ranks.

    All ranks are one already. Only its members take part in making a group; those that are members
    of several ask for them in the same order.
    """

    def __init__(self) -> None:
        self._made: dict[frozenset[int], Any] = {}

    def of(self, ranks: Iterable[int]) -> Any:
        """Return the group of these ranks, this one among them.

        Raises :class:`ConfigurationError` where it is not.
        """
        import torch.distributed as dist

        members = frozenset(ranks)
        if dist.get_rank() not in members:
            problem = f"rank {dist.get_rank()} is none of {sorted(members)}"
            raise ConfigurationError("ranks", problem)
        if len(members) == dist.get_world_size():
            return dist.group.WORLD
        if members not in self._made:
            self._made[members] = dist.new_group(sorted(members), use_local_synchronization=True)
        return self._made[members]


@dataclass(frozen=True, slots=True)
class Shard:
    """One table: which rank has it, and from which element of that rank's tables on."""

    table: int
    rank: int
    rows: int
    begin: int


@dataclass(frozen=True, slots=True)
class ShardPlan:
    """Which rank has which table; ``rows`` and ``owners`` by the tables' numbers."""

    rows: tuple[int, ...]
    owners: tuple[int, ...]

    @classmethod
    def greedy(cls, rows: Sequence[int], world: int) -> ShardPlan:
        """Give each table, the largest first, to the rank that has the fewest rows so far.

        Raises :class:`ConfigurationError` where there are fewer tables than ranks.
        """
        if len(rows) < world:
            raise ConfigurationError("tables", f"{len(rows)} are too few for {world} ranks")
        loads = [(0, 0, rank) for rank in range(world)]  # rows, tables, rank
        owners = [0] * len(rows)
        for table in sorted(range(len(rows)), key=lambda t: -rows[t]):
            load, count, rank = min(loads)
            loads[rank] = (load + rows[table], count + 1, rank)
            owners[table] = rank
        return cls(tuple(rows), tuple(owners))

    def of(self, rank: int) -> list[int]:
        """Return the numbers of a rank's tables."""
        return [table for table, owner in enumerate(self.owners) if owner == rank]

    def shards(self) -> list[Shard]:
        """Return where every table lies: nobody needs to be asked."""
        filled: dict[int, int] = {}
        found = []
        for table, (rows, rank) in enumerate(zip(self.rows, self.owners, strict=True)):
            found.append(Shard(table, rank, rows, filled.get(rank, 0)))
            filled[rank] = filled.get(rank, 0) + rows
        return found


def share(rows: Sequence[int], owners: Sequence[int] | None) -> ShardPlan:
    """Return on every rank the plan whose ``owners`` the first rank tells, in one broadcast.

    The others give None; ``rows`` of the tables are known to all.
    """
    import torch
    import torch.distributed as dist

    if not dist.is_available() or not dist.is_initialized():
        return ShardPlan(tuple(rows), tuple(owners or ()))
    told = torch.tensor(owners) if owners is not None else torch.empty(len(rows), dtype=torch.int64)
    dist.broadcast(told, src=0)
    return ShardPlan(tuple(rows), tuple(told.tolist()))
