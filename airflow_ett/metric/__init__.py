"""The metric: an exact partition of a job's wall clock, and every number derived from it.

Pure and standard library only; ``docs/metric.md`` defines the words.
"""

from airflow_ett.metric.account.numbers import Quality
from airflow_ett.metric.fold import Fold
from airflow_ett.metric.measure import measure
from airflow_ett.metric.phases import (
    COMPONENTS,
    Component,
    Components,
    Phase,
    configured,
)
from airflow_ett.metric.result import (
    AttemptMetric,
    Checkpoint,
    Compile,
    JobMetric,
    Published,
    Recovery,
    Span,
)

__all__ = [
    "COMPONENTS",
    "AttemptMetric",
    "Checkpoint",
    "Compile",
    "Component",
    "Components",
    "Fold",
    "JobMetric",
    "Phase",
    "Published",
    "Quality",
    "Recovery",
    "Span",
    "configured",
    "measure",
]
