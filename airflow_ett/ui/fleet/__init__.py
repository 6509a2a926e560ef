"""The fleet page: all Dags that the user may read, from the rollup."""
