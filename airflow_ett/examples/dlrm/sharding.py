"""The exchange between tables, which are some rank's, and samples, which are another's."""

from __future__ import annotations

from typing import Any

import torch

from airflow_ett.trainer.communication import Groups, ShardPlan


class Exchange:
    """Turns all samples' vectors of one rank's tables into its own samples' of all tables.

    On one rank there is nothing to exchange.
    """

    def __init__(self, plan: ShardPlan, rank: int, world: int, groups: Groups) -> None:
        self.rank = rank
        self.world = world
        self._groups = groups
        arrival = [plan.of(other) for other in range(world)]
        self._counts = [len(tables) for tables in arrival]
        self._order = torch.tensor([table for tables in arrival for table in tables]).argsort()

    def __call__(self, pooled: Any) -> Any:
        """Turn [all samples, own tables, dimension] into [own samples, all tables, dimension]."""
        if self.world == 1:
            return pooled
        from torch.distributed import _functional_collectives as collectives

        samples, own, dimension = pooled.shape
        share = samples // self.world
        sizes = [share * count * dimension for count in self._counts]
        arrived = collectives.all_to_all_single_autograd(
            pooled.reshape(-1),
            sizes,
            [share * own * dimension] * self.world,
            self._groups.of(range(self.world)),
        )
        parts = collectives.wait_tensor(arrived).split(sizes)
        tables = [part.view(share, -1, dimension) for part in parts]
        return torch.cat(tables, dim=1)[:, self._order]
