"""The ETT% pages in Airflow's UI. Only ``plugin`` is imported outside the api-server."""
