"""A committed checkpoint becomes a serving snapshot in a registry, whole or not at all.

``python -m airflow_ett.publish`` is the same as a command. torch is imported when it is needed.
"""

from airflow_ett.publish.loading import load
from airflow_ett.publish.publisher import Published, publish
from airflow_ett.publish.registries.protocol import Registry, Snapshot
from airflow_ett.publish.request import Request

__all__ = ["Published", "Registry", "Request", "Snapshot", "load", "publish"]
