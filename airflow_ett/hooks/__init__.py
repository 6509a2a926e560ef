"""What the Airflow side shares: connections, settings, opening a job, ingest on the way."""
