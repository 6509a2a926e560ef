"""What is trained, the same in all rows, and how a row's levers are told to the trainer."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace

from ablation.rows import Row

MODULE = "airflow_ett.examples.dlrm.train"
FACTORY = "airflow_ett.examples.dlrm.model:build"
SIZES_VARIABLE = "DLRM_SIZES"
"""Tells the factory of the sizes."""

_SWITCHES = (
    "compile_cache",
    "fast_batch",
    "parallel_init",
    "lean_communication",
    "warm_recovery",
    "background_saves",
    "parcels",
)
_EARLIER_BATCHES = 100
_AWAY = 0.08
"""How far from a third and two thirds of the samples a failure lies at most."""


@dataclass(frozen=True, slots=True)
class Workload:
    """The inputs. ``every_s`` is the interval of rows that do not tune it.

    ``retry_delay_s`` lies between a failure and the next try where the retry is not immediate.
    ``expected_s`` is what a run of the baseline and one with all levers last, roughly.
    """

    samples: int
    batch_size: int
    tables: int
    rows: int
    dimension: int
    layers: int
    warmup_s: float
    publish_s: float
    every_s: float
    retry_delay_s: float
    expected_s: tuple[float, float]
    seed: int = 9
    compiled: bool = True

    def kills(self, repetition: int) -> tuple[int, int]:
        """Return the cursors of the two failures: the same in all rows, others in each repetition.

        A failure loses what was trained since the last save, and where that lies between two saves
        is luck: it must not be the same luck each time.
        """
        drawn = random.Random(f"{self.seed} {repetition}")
        one, two = (drawn.uniform(third - _AWAY, third + _AWAY) for third in (1 / 3, 2 / 3))
        return int(self.samples * one), int(self.samples * two)

    @property
    def sizes(self) -> dict[str, int]:
        """What the model's factory is told."""
        names = ("tables", "rows", "dimension", "layers")
        return {name: getattr(self, name) for name in names}

    def arguments(self, row: Row, repetition: int, every_s: float) -> list[str]:
        """Return the trainer's arguments."""
        kills = enumerate(self.kills(repetition), 1)
        values = {
            "samples": self.samples,
            "batch-size": self.batch_size,
            **self.sizes,
            "seed": self.seed,
            "warmup-s": self.warmup_s,
            "publish-s": self.publish_s,
            "publish": "standalone" if "standalone_publish" in row.levers else "in_trainer",
            "every-s": every_s,
            "inject": ",".join(f"{submission}:kill:{cursor}" for submission, cursor in kills),
        }
        switches = {lever: lever in row.levers for lever in _SWITCHES}
        switches |= {"autotune": False, "compile": self.compiled}
        return [
            *(f"--{name}={value}" for name, value in values.items()),
            *(f"--{'' if on else 'no-'}{name.replace('_', '-')}" for name, on in switches.items()),
        ]

    def earlier(self, row: Row, every_s: float) -> list[str]:
        """Return the arguments of a job that the DAG has had before: a short one, without failures.

        What it keeps does not depend on its length.
        """
        short = replace(self, samples=_EARLIER_BATCHES * self.batch_size)
        arguments = short.arguments(row, 0, every_s)
        return [one for one in arguments if not one.startswith("--inject=")]

    def digest(self) -> str:
        """Return eight digits that change with any input."""
        inputs = asdict(self)
        del inputs["expected_s"]
        return hashlib.sha256(json.dumps(inputs).encode()).hexdigest()[:8]

    def sweep(self) -> Iterator[tuple[str, str, Workload]]:
        """Yield the inputs that somebody could have chosen to please: name, value, workload."""
        for name, field, unit, factors in _SWEPT:
            for factor in factors:
                here = getattr(self, field)
                value = type(here)(here * factor)
                yield name, f"{value:,g}{unit}", replace(self, **{field: value})


_SWEPT = (
    ("publish time", "publish_s", " s", (0.25, 1, 4)),
    ("checkpoint size", "rows", " rows a table", (0.25, 1, 3)),
    ("data warm-up", "warmup_s", " s", (0.25, 1, 2.5)),
    ("delay of a retry", "retry_delay_s", " s", (0.25, 1, 3)),
)
"""Each is swept around the workload's own value, which is the factor 1."""
