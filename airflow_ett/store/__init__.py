"""The ETT database: a projection of the job logs that the pages, the CLI and the rollup read."""

from airflow_ett.store import queries
from airflow_ett.store.engine import Store, open_store
from airflow_ett.store.ingest import ingest_root, ingest_run_dir
from airflow_ett.store.report import IngestReport
from airflow_ett.store.schema import upgrade

__all__ = [
    "IngestReport",
    "Store",
    "ingest_root",
    "ingest_run_dir",
    "open_store",
    "queries",
    "upgrade",
]
