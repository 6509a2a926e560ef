"""Train the ranker: ``python -m airflow_ett.examples.ranker.train``.

Runs alone as well as in a launched job. The lines marked with numbers are all that a training loop
needs to be measured, checkpointed and resumed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

from airflow_ett.examples.arguments import positive
from airflow_ett.examples.ranker.data import batches, load
from airflow_ett.examples.ranker.evaluation import evaluate
from airflow_ett.examples.ranker.faults import parse_faults, strike
from airflow_ett.examples.ranker.model import build, example_batch
from airflow_ett.trainer import Session

_SEED = 20
_PROGRESS_STEPS = 100


def main(arguments: Sequence[str] | None = None) -> None:
    """Train to ``--samples``, resuming where the job's newest checkpoint stands, and evaluate."""
    options = _parser().parse_args(arguments)
    size = options.batch_size
    with Session() as ett:  # 1
        with ett.phase("device_init"):
            torch.set_num_threads(1)
            torch.manual_seed(_SEED)
        with ett.phase("preproc_creation"):
            data = load(options.data, _SEED)
            print(f"data: {data.source}", flush=True)
        with ett.phase("train_module_creation"):
            model = build()
            optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1)
            forward = _compiled(model, ett, wanted=options.compile)
        saver = ett.checkpointer(  # 2
            model=model, optimizer=optimizer, golden=example_batch(), every_s=options.every_s
        )
        start = saver.restore()  # 3
        submission = ett.attempt.submission if ett.attempt else 1
        loader = batches(data, start=start, total=options.samples, size=size, seed=_SEED)
        done = start
        for batch in ett.track(loader, cursor=start):  # 4
            loss = functional.binary_cross_entropy_with_logits(
                forward(batch.dense, batch.sparse), batch.label
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            before, done = done, done + size
            ett.step(done - start)  # 5
            strike(options.inject, submission, before, done)
            if done // size % _PROGRESS_STEPS == 0:
                print(f"cursor {done}/{options.samples}: loss {loss.item():.4f}", flush=True)
        if not ett.preempted:
            with ett.phase("evaluation"):
                score = evaluate(model, data.held_out())
            print(f"evaluation: auc {score.auc:.4f}, logloss {score.logloss:.4f}", flush=True)


def _compiled(model: Any, ett: Session, *, wanted: bool) -> Any:
    """Return the model compiled, or itself where that is not wanted or not possible.

    Later attempts and jobs find what this one compiles: one more line, and nothing depends on it.
    """
    problem = _compiler_problem()
    if not wanted or problem:
        print(f"torch.compile: off ({problem or '--no-compile'})", flush=True)
        return model
    ett.compile_cache(model)
    return torch.compile(model, dynamic=False)


def _compiler_problem() -> str | None:
    """Say what torch.compile lacks to build its kernels on this machine, if anything."""
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None:
        return f"no C++ compiler: {compiler} not found"
    header = Path(sysconfig.get_path("include"), "Python.h")
    return None if header.exists() else f"no Python headers: {header} not found"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="airflow_ett.examples.ranker.train")
    add = parser.add_argument
    add("--samples", type=int, default=360_000, help="train up to this cursor, in whole batches")
    add("--batch-size", type=positive, default=256)
    add("--every-s", type=float, default=10.0, help="seconds between checkpoints")
    add("--data", type=Path, help="folder of MovieLens-100k; fetched into it if missing")
    add(
        "--compile",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="train with torch.compile where a C++ compiler is at hand",
    )
    add(
        "--inject",
        type=parse_faults,
        default=[],
        metavar="SUBMISSION:raise|kill:CURSOR,...",
        help="fail in this submission when the cursor reaches CURSOR",
    )
    return parser


if __name__ == "__main__":
    main()
