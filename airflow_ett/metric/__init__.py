"""The metric: an exact partition of a job's wall clock, and every number derived from it.

Pure and standard library only; ``docs/metric.md`` defines the words.
"""

from airflow_ett.metric.measure import Quality, measure
from airflow_ett.metric.phases import COMPONENTS, Component, Phase, component_of
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
    "JobMetric",
    "Phase",
    "Published",
    "Quality",
    "Recovery",
    "Span",
    "component_of",
    "measure",
]
