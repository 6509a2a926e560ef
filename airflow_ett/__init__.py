"""Effective training time (ETT%) in Airflow: launch, recover, measure and publish training."""

__version__ = "0.1.0"
