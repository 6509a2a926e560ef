"""Over the whole fleet: the rollup, and reports for people."""

from airflow_ett.fleet.rollup import roll_up
from airflow_ett.metric.report import render

__all__ = ["render", "roll_up"]
