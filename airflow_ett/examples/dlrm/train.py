"""Train the model: ``python -m airflow_ett.examples.dlrm.train``, alone or in a launched job."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from functools import partial

import torch

from airflow_ett.errors import ConfigurationError
from airflow_ett.examples.dlrm import model as code
from airflow_ett.examples.dlrm.data import AT_ONCE, Clicks, Order, Part, load
from airflow_ett.examples.dlrm.model import Sizes
from airflow_ett.examples.dlrm.options import parse, sizes
from airflow_ett.examples.dlrm.publishing import publish
from airflow_ett.examples.dlrm.start import parts
from airflow_ett.examples.dlrm.training import Training
from airflow_ett.examples.ranker.faults import strike
from airflow_ett.trainer import Session
from airflow_ett.trainer.communication import leave

_PROGRESS_STEPS = 100


def main(arguments: Sequence[str] | None = None) -> None:
    """Train to ``--samples``, resuming where the job's newest checkpoint stands."""
    options = parse(arguments, os.environ)
    torch.set_num_threads(1)
    try:
        _train(options)
    finally:
        leave()


def _train(options: argparse.Namespace) -> None:
    size = sizes(options)
    with Session() as ett:
        if options.compile:
            ett.compile_cache(code)
        made = ett.parallel_init(**parts(ett, options, size))
        ranks, (model, training) = made.process_group_init, made.train_module_creation
        saver = ett.checkpointer(model=model, optimizer=training.optimizer, every_s=options.every_s)
        start = saver.restore()
        part = Part(ranks.rank, ranks.world, ranks.plan.of(ranks.rank))
        clicks = _clicks(options, size, part, made.preproc_creation, start)
        ett.fast_batch(training.loss, partial(clicks.batch, 0, options.batch_size))
        _loop(ett, options, training, clicks, start)
        if options.publish == "in_trainer" and not ett.preempted:
            publish(ett, size, options.registry, options.publish_s)


def _clicks(
    options: argparse.Namespace, size: Sizes, part: Part, index: Sequence[int], cursor: int
) -> Clicks:
    if options.batch_size % (4 * part.world):
        problem = f"{options.batch_size} is no multiple of 4 x {part.world} ranks"
        raise ConfigurationError("--batch-size", problem)
    order = Order(options.samples, options.batch_size, varies=options.dynamic != "off")
    return Clicks(
        size,
        part,
        order,
        index,
        cursor=cursor,
        seed=options.seed,
        wait_s=options.warmup_s / 2,
    )


def _loop(
    ett: Session, options: argparse.Namespace, training: Training, clicks: Clicks, start: int
) -> None:
    submission = ett.attempt.submission if ett.attempt else 1
    told = _PROGRESS_STEPS * options.batch_size
    done = start
    for batch in ett.track(ett.parcels(load(clicks), AT_ONCE), cursor=start):
        loss = training.step(batch)
        before, done = done, done + batch.samples
        ett.step(done - start)
        strike(options.inject, submission, before, done)
        if before // told < done // told:
            training.tell(f"cursor {done}/{options.samples}: loss", loss)


if __name__ == "__main__":
    main()
