"""What a training loop uses: the Session. Neither Airflow nor torch is imported by it."""

from airflow_ett.trainer.session import Session

__all__ = ["Session"]
