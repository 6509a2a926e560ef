"""Over the whole fleet: the rollup."""

from airflow_ett.fleet.rollup import roll_up

__all__ = ["roll_up"]
