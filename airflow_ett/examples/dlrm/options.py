"""The trainer's arguments. A lever's does what its variable in an operator's ``env`` does."""

from __future__ import annotations

import argparse
from collections.abc import MutableMapping, Sequence
from pathlib import Path
from typing import Literal

from airflow_ett.config import SWITCHES
from airflow_ett.examples.arguments import positive
from airflow_ett.examples.dlrm.model import Sizes
from airflow_ett.examples.ranker.faults import parse_faults

LEVERS = {
    "compile_cache": "use what was compiled before, and keep what will be",
    "autotune": "with --max-autotune: take the fastest kernels of earlier attempts, untimed",
    "fast_batch": "compile on a synthetic batch while the first one is fetched",
    "parallel_init": "make the parts of the start-up at the same time",
    "lean_communication": "make process groups when first used, plan shards with one broadcast",
    "parcels": "have batches handed over many at a time",
    "warm_recovery": "reuse the sharding plan and the dataset's index",
    "background_saves": "write checkpoints beside the training",
}


def parse(arguments: Sequence[str] | None, environ: MutableMapping[str, str]) -> argparse.Namespace:
    """Return the options; levers that they switch off are switched off in ``environ``."""
    options = _parser().parse_args(arguments)
    for lever in LEVERS:
        if not getattr(options, lever):
            environ[SWITCHES[lever]] = "0"
    return options


def sizes(options: argparse.Namespace) -> Sizes:
    """Return the model's sizes."""
    return Sizes(options.tables, options.rows, options.dimension, options.layers)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="airflow_ett.examples.dlrm.train", allow_abbrev=False)
    add = parser.add_argument
    size = Sizes()
    add("--samples", type=int, default=2_000_000, help="train up to this cursor, in whole batches")
    add("--batch-size", type=positive, default=256, help="of all ranks, in steps of 4 x ranks")
    add("--tables", type=positive, default=size.tables)
    add("--rows", type=positive, default=size.rows, help="of each table")
    add("--dimension", type=positive, default=size.dimension)
    add("--layers", type=positive, default=size.layers, help="on top; each is compiled")
    add("--seed", type=int, default=9)
    add(
        "--inject",
        type=parse_faults,
        default=[],
        metavar="SUBMISSION:raise|kill:CURSOR,...",
        help="fail in this submission when the cursor reaches CURSOR",
    )
    add(
        "--warmup-s",
        type=float,
        default=2.0,
        help="seconds until data flows: half for the dataset's index, half to open it",
    )
    add("--publish", choices=("in_trainer", "standalone"), default="standalone")
    add("--publish-s", type=float, default=0.0, help="publishing takes at least so many seconds")
    add("--registry", type=Path, default=Path("dlrm-registry"), help="folder to publish into")
    add("--every-s", type=_interval, default="auto", metavar="SECONDS|auto|never")
    add(
        "--dynamic",
        choices=("off", "plain", "marked", "padded"),
        default="off",
        help="batches of varying size: not at all, left to torch, marked dynamic, padded to one",
    )
    flag = argparse.BooleanOptionalAction
    add("--compile", action=flag, default=True, help="train with torch.compile")
    add("--max-autotune", action=flag, default=False, help="time several kernels for each")
    for lever, meaning in LEVERS.items():
        add(f"--{lever.replace('_', '-')}", action=flag, default=True, help=meaning)
    return parser


def _interval(text: str) -> float | Literal["auto"] | None:
    if text == "auto":
        return "auto"
    return None if text == "never" else float(text)
