"""A committed checkpoint becomes a serving snapshot in a registry folder, whole or not at all.

``python -m airflow_ett.publish`` is the same as a command. torch is imported when it is needed.
"""

from airflow_ett.publish.publisher import Published, publish

__all__ = ["Published", "publish"]
