"""The lines to add, shown where a Dag has no training yet: read from the tested examples."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files

_MARK = "  # +"


@dataclass(frozen=True, slots=True)
class Line:
    """A line of code, and whether it is one to add."""

    text: str
    added: bool


@dataclass(frozen=True, slots=True)
class FirstSteps:
    """The Dag's file and the training script, without their docstrings."""

    dag: tuple[Line, ...]
    train: tuple[Line, ...]


def first_steps() -> FirstSteps:
    """Return the two files of ``airflow_ett.examples.first_steps``."""
    return FirstSteps(dag=_lines("dag.py"), train=_lines("train.py"))


def _lines(name: str) -> tuple[Line, ...]:
    folder = files("airflow_ett.examples").joinpath("first_steps")
    code = folder.joinpath(name).read_text(encoding="utf-8").split('"""', 2)[2]
    return tuple(
        Line(line.removesuffix(_MARK), line.endswith(_MARK)) for line in code.strip().splitlines()
    )
