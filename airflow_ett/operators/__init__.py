"""The two operators: train on accelerators, publish on a CPU; and a published model's asset."""

from airflow_ett.operators.publish import ModelPublishOperator
from airflow_ett.operators.publishing.assets import model_asset
from airflow_ett.operators.training import TorchXTrainingOperator

__all__ = ["ModelPublishOperator", "TorchXTrainingOperator", "model_asset"]
