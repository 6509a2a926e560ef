"""Where a job's log lies: a folder, an object store, or the API. One small protocol for all."""

from airflow_ett.storage.protocol import Entry, Readable, Storage

__all__ = ["Entry", "Readable", "Storage"]
