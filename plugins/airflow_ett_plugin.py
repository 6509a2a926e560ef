"""For deployments that mount a plugins folder and only put ``airflow_ett`` on the path.

Where the distribution is installed, its entry point has brought the plugin and this does nothing.
"""

from importlib.metadata import entry_points

if "airflow_ett" not in entry_points(group="airflow.plugins").names:
    from airflow_ett.ui.plugin import EttPlugin  # noqa: F401
