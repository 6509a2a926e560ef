"""The two operators: train on accelerators, publish on a CPU."""

from airflow_ett.operators.publish import ModelPublishOperator
from airflow_ett.operators.training import TorchXTrainingOperator

__all__ = ["ModelPublishOperator", "TorchXTrainingOperator"]
