"""A faster start: the model compiles while data is fetched, and parts begin at the same time."""

from airflow_ett.trainer.start.batchspec import BatchSpec

__all__ = ["BatchSpec"]
