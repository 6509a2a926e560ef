"""Publishing within the trainer, as is often done: the GPUs wait for it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from airflow_ett.examples.dlrm.model import Dlrm, Sizes
from airflow_ett.trainer.communication import ShardPlan


def write(weights: Mapping[str, Any], folder: Path, at_least_s: float) -> None:
    """Write a model's weights into a folder; a slow registry takes its time."""
    end = time.monotonic() + at_least_s
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / ".model.safetensors"
    save_file(weights, draft)
    time.sleep(max(0.0, end - time.monotonic()))
    draft.replace(folder / "model.safetensors")


def whole(model: Dlrm, sizes: Sizes, plan: ShardPlan) -> dict[str, Any]:
    """Return the weights of all ranks' tables and of the rest; all ranks call it."""
    state = model.state_dict()
    for table, owner in enumerate(plan.owners):
        name = f"tables.parts.{table}.weight"
        if name not in state:
            state[name] = next(iter(state.values())).new_empty(sizes.rows, sizes.dimension)
        if torch.distributed.is_initialized():
            torch.distributed.broadcast(state[name], src=owner)
    return {name: tensor.cpu().contiguous() for name, tensor in state.items()}
