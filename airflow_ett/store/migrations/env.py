"""Alembic's entry: runs the revisions on the connection that ``store.upgrade`` hands over."""

from alembic import context

from airflow_ett.store.revision import VERSION_TABLE
from airflow_ett.store.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
)
with context.begin_transaction():
    context.run_migrations()
