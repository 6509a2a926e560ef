"""The parts of the trainer's start-up. Each is a phase by the name of its function."""

from __future__ import annotations

import argparse
import importlib
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from airflow_ett.examples.dlrm import chatty
from airflow_ett.examples.dlrm.data import make_index
from airflow_ett.examples.dlrm.model import Dlrm, Sizes
from airflow_ett.examples.dlrm.sharding import Exchange
from airflow_ett.examples.dlrm.training import Shapes, Training
from airflow_ett.trainer import Session
from airflow_ett.trainer.communication import Groups, ShardPlan, join, share


class Ranks(NamedTuple):
    """This rank, how many there are, and which tables they have."""

    rank: int
    world: int
    plan: ShardPlan


class Model(NamedTuple):
    """What is trained, and what trains it."""

    model: Dlrm
    training: Training


def parts(ett: Session, options: argparse.Namespace, sizes: Sizes) -> dict[str, Callable[..., Any]]:
    """Return what :meth:`Session.parallel_init` makes."""

    def device_init() -> Any:
        if not torch.cuda.is_available():
            return torch.device("cpu")
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
        return device

    def process_group_init(device_init: Any) -> Ranks:
        rank, world = join()
        rows = [sizes.rows] * sizes.tables
        return Ranks(rank, world, _plan(ett, rows, rank, world))

    def preproc_creation() -> list[int]:
        def make() -> list[int]:
            return make_index(options.seed, options.warmup_s / 2)

        index: list[int] = ett.warm("dataset_index", make, key=options.seed)
        return index

    def init_plugins() -> None:
        """Import what takes seconds: else the first optimizer and the first compilation do."""
        importlib.import_module(
            "torch._inductor.compile_fx" if options.compile else "torch._dynamo"
        )
        if options.compile and options.max_autotune:
            ett.autotune()

    def train_module_creation(
        device_init: Any, process_group_init: Ranks, init_plugins: None
    ) -> Model:
        rank, world, plan = process_group_init
        model = Dlrm(sizes, options.seed, plan.of(rank)).to(device_init)
        mode = "max-autotune-no-cudagraphs" if options.max_autotune else "default"
        dense = torch.compile(model.dense, mode=mode) if options.compile else model.dense
        shapes = Shapes(options.dynamic, options.batch_size // world)
        exchange = Exchange(plan, rank, world, Groups())
        return Model(model, Training(model, dense, shapes, exchange, device_init))

    made = device_init, process_group_init, preproc_creation, init_plugins, train_module_creation
    return {part.__name__: part for part in made}


def _plan(ett: Session, rows: list[int], rank: int, world: int) -> ShardPlan:
    """Agree on a plan with the other ranks, the lean way unless that is switched off."""
    if world > 1 and not ett.levers.on("lean_communication"):
        chatty.make_groups(world)
        return chatty.gather_plan(rows, rank, world)

    def make() -> list[int]:
        return list(ShardPlan.greedy(rows, world).owners)

    plan = share(rows, ett.warm("plan", make, key=[rows, world]) if rank == 0 else None)
    if world > 1:
        ett.levers.tell("lean_communication", "used", "one broadcast, groups when first used")
    return plan
