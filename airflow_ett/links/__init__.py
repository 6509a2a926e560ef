"""Extra links of a training task: there from right after submit, in every state."""

from airflow_ett.links.board import LinkBoard
from airflow_ett.links.extra import LINKS

__all__ = ["LINKS", "LinkBoard"]
