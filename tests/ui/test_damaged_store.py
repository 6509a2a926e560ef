"""A store whose tables nobody can trust, as the page tells of it."""

from airflow_ett.errors import StoreDamaged
from airflow_ett.ui import pages


def test_the_page_names_the_command_and_no_address() -> None:
    error = StoreDamaged("The ETT database postgresql://db.example/ett: table ett_job is missing")
    html = pages.store_page(error, now_ns=0, reference="0a1b2c3d")
    assert "airflow-ett db check" in html
    assert "0a1b2c3d" in html
    assert "db.example" not in html
