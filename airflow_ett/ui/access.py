"""Who may see a page: the rules of :mod:`airflow_ett.api.access`."""

from airflow_ett.api.access import Denied, ReadableDag, get_user

__all__ = ["Denied", "ReadableDag", "get_user"]
