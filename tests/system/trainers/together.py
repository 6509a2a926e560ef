"""A trainer whose ranks add up their steps with PyTorch's gloo, and say what came of it."""

import argparse
from pathlib import Path

import torch
import torch.distributed as dist

from airflow_ett.trainer import Session

parser = argparse.ArgumentParser()
parser.add_argument("--place", type=Path, required=True)
place: Path = parser.parse_args().place

with Session() as ett:
    with ett.phase("process_group_init"):
        dist.init_process_group("gloo")
    for step in ett.track(range(20)):
        total = torch.ones(1)
        dist.all_reduce(total)
        ett.step(step + 1)
    print(f"rank {dist.get_rank()} counts {total.item():.0f}", flush=True)
    dist.destroy_process_group()
