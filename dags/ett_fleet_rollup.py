"""The scheduled fleet rollup: ingest what is pending, then per-day, per-DAG sums; the reaper."""

from airflow_ett.dags import rollup_dag

dag = rollup_dag()
