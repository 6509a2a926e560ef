"""``python -m airflow_ett.cli``."""

import sys

from airflow_ett.cli import main

if __name__ == "__main__":
    sys.exit(main())
