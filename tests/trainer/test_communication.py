"""Plans of shards, and what ranks say to each other to agree on one."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_ett.errors import ConfigurationError
from airflow_ett.trainer.communication import Groups, Shard, ShardPlan, join, leave, share
from tests.forked import run_ranks

ROWS = [700, 100, 400, 300, 200]


@given(rows=st.lists(st.integers(1, 1000), min_size=4, max_size=30), world=st.integers(1, 4))
def test_each_table_has_one_rank_and_no_rank_much_more_than_its_share(
    rows: list[int], world: int
) -> None:
    plan = ShardPlan.greedy(rows, world)
    assert sorted(t for rank in range(world) for t in plan.of(rank)) == list(range(len(rows)))
    loads = Counter[int]()
    for shard in plan.shards():
        assert shard.begin == loads[shard.rank]  # one behind the other
        loads[shard.rank] += shard.rows
    assert set(loads) == set(range(world))
    assert max(loads.values()) - min(loads.values()) <= max(rows)


def test_equal_tables_are_dealt_out_evenly() -> None:
    plan = ShardPlan.greedy([5, 5, 5, 5, 5, 5], 3)
    assert [len(plan.of(rank)) for rank in range(3)] == [2, 2, 2]


def test_fewer_tables_than_ranks_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="1 are too few for 2 ranks"):
        ShardPlan.greedy([5], 2)


@pytest.mark.torch
def test_alone_there_is_nobody_to_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert join() == (0, 1)
    assert share(ROWS, [0] * 5) == ShardPlan(tuple(ROWS), (0,) * 5)
    leave()


@pytest.mark.torch
def test_ranks_agree_with_one_broadcast() -> None:
    pytest.importorskip("torch")

    def act() -> Any:
        import torch.distributed as dist

        rank, world = join()
        assert join() == (rank, world) == (dist.get_rank(), 3)
        calls = counted(dist, "broadcast", "all_gather", "all_reduce", "barrier", "new_group")
        owners = ShardPlan.greedy(ROWS, world).owners if rank == 0 else None
        plan = share(ROWS, owners)
        leave()
        assert not dist.is_initialized()
        return calls, plan.shards()

    first, *others = run_ranks(3, act)
    assert first == (["broadcast"], first[1])
    assert all(other == first for other in others)
    assert first[1][:2] == [Shard(0, 0, 700, 0), Shard(1, 1, 100, 0)]


@pytest.mark.torch
def test_a_group_is_made_by_its_members_when_they_first_ask_and_once() -> None:
    torch = pytest.importorskip("torch")

    def act() -> Any:
        import torch.distributed as dist

        rank, world = join()
        calls = counted(dist, "new_group")
        groups = Groups()
        assert groups.of(range(world)) is dist.group.WORLD
        if rank == 2:
            with pytest.raises(ConfigurationError, match=r"rank 2 is none of \[0, 1\]"):
                groups.of([0, 1])
            return calls, None
        group = groups.of([0, 1])
        assert groups.of((1, 0)) is group
        total = torch.tensor(10 + rank)
        dist.all_reduce(total, group=group)
        return calls, int(total)

    assert run_ranks(3, act) == [(["new_group"], 21), (["new_group"], 21), ([], None)]


def counted(module: Any, *names: str) -> list[str]:
    """Return a list to which each call of these functions adds its name."""
    calls: list[str] = []

    def wrap(name: str, function: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            calls.append(name)
            return function(*args, **kwargs)

        return call

    for name in names:
        setattr(module, name, wrap(name, getattr(module, name)))
    return calls
