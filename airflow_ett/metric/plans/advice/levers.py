"""All that may be fixed: key -> what it would be for given jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction

from airflow_ett.metric.plans.advice.checkpointing import background_saves, checkpoint_interval
from airflow_ett.metric.plans.advice.compiling import compile_cache
from airflow_ett.metric.plans.advice.failing import failures, stalls
from airflow_ett.metric.plans.advice.gains import Proposal
from airflow_ett.metric.plans.advice.graphs import fewer_graphs
from airflow_ett.metric.plans.advice.jobs import Jobs
from airflow_ett.metric.plans.advice.simple import SECOND, AtOnce, Shorten

Lever = Callable[[Jobs], Proposal | None]

LEVERS: Mapping[str, Lever] = {
    "publish": Shorten(
        "publish",
        "Publish on a CPU after the anchor checkpoint",
        "{runs} held {accelerators} through publish, {median} at the median. Add a task "
        "ModelPublishOperator(checkpoint=train.output, ...) in its place: it needs none of them.",
    ),
    "compile_cache": compile_cache,
    "fewer_graphs": fewer_graphs,
    "fast_batch": AtOnce(
        "fast_batch",
        ("first_batch", "compile"),
        "Fetch the first batch while the model compiles",
        "fetched their first batch and compiled",
    ),
    "parallel_init": AtOnce(
        "parallel_init",
        ("preproc_creation", "train_module_creation"),
        "Create preprocessing and model at the same time",
        "created preprocessing and model",
    ),
    "checkpoint_interval": checkpoint_interval,
    "background_saves": background_saves,
    "failures": failures,
    "stalls": stalls,
    "failure_detection": Shorten(
        "failure_detection",
        "Learn of a failure within seconds",
        "{attempts} in {runs} had been over for {median}, at the median, before it was known. "
        "{keeps} are assumed to remain.",
        keeps_ns=10 * SECOND,
    ),
    "retry_wait": Shorten(
        "retry_wait",
        "Start the next attempt at once",
        "After {attempts} in {runs} the next one was submitted {median} later, at the median. "
        "{keeps} are assumed to remain.",
        keeps_ns=10 * SECOND,
    ),
    "data_wait": Shorten(
        "data_wait",
        "Halve the waiting for data",
        "{runs} waited for data, {median} a job at the median; all told {share} of the wall "
        "clock. Half of it is assumed to go.",
        share=Fraction(1, 2),
    ),
    "evaluation": Shorten(
        "evaluation",
        "Evaluate in a task of its own",
        "{runs} held {accelerators} through evaluations, {median} a job at the median. In a "
        "task of its own nothing waits for it.",
    ),
}
