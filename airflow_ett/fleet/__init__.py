"""Over the whole fleet: the rollup, and reports for people."""

from airflow_ett.fleet.report import render
from airflow_ett.fleet.rollup import roll_up

__all__ = ["render", "roll_up"]
