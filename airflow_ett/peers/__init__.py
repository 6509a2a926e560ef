"""The logs of other meters, retold as ours. Knows ``events`` alone."""

from airflow_ett.peers.ml_goodput import read_ml_goodput
from airflow_ett.peers.reading import Problem, Told
from airflow_ett.peers.resiliency import read_resiliency

__all__ = ["Problem", "Told", "read_ml_goodput", "read_resiliency"]
