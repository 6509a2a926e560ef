"""What Airflow asks a provider for: names, options, connection types."""

from __future__ import annotations

from typing import Any

from airflow_ett import __version__
from airflow_ett.config import OPTIONS

_CONNECTION_FIELDS: dict[str, Any] = {
    "scheduler": {
        "label": "Scheduler",
        "schema": {"type": ["string", "null"]},
        "description": "A TorchX scheduler, such as slurm; local_detached where empty.",
    },
    "cfg": {
        "label": "Options",
        "schema": {"type": ["object", "null"]},
        "description": "Options of the scheduler (JSON); a task's own cfg is laid over them.",
    },
    "checkpoint_root": {
        "label": "Checkpoint root",
        "schema": {"type": ["string", "null"]},
        "description": "Folder of the checkpoints; [ett] checkpoint_root where empty.",
    },
}
"""What :class:`airflow_ett.hooks.torchx.TorchXHook` reads of a connection."""

_LINKS = ("JobLink", "EttLink", "LogsLink", "CheckpointLink")


def get_provider_info() -> dict[str, Any]:
    """Return the provider's description in Airflow's own schema."""
    return {
        "package-name": "airflow-ett",
        "name": "ETT",
        "description": "Effective training time: launch, recover, measure and publish training.",
        "versions": [__version__],
        "operators": [
            {
                "integration-name": "ETT",
                "python-modules": [
                    "airflow_ett.operators.training",
                    "airflow_ett.operators.publish",
                ],
            }
        ],
        "triggers": [
            {
                "integration-name": "ETT",
                "python-modules": [
                    "airflow_ett.triggers.training",
                    "airflow_ett.triggers.publishing",
                ],
            }
        ],
        "hooks": [{"integration-name": "ETT", "python-modules": ["airflow_ett.hooks.torchx"]}],
        "extra-links": [f"airflow_ett.links.extra.{name}" for name in _LINKS],
        "connection-types": [
            {
                "connection-type": "torchx",
                "hook-class-name": "airflow_ett.hooks.torchx.TorchXHook",
                "hook-name": "TorchX",
                "conn-fields": _CONNECTION_FIELDS,
                "ui-field-behaviour": {
                    "hidden-fields": ["host", "port", "login", "password", "schema", "extra"],
                    "relabeling": {},
                    "placeholders": {},
                },
            }
        ],
        "config": {
            "ett": {
                "description": "Effective training time (ETT%).",
                "options": {
                    option.name: {
                        "description": option.help,
                        "version_added": __version__,
                        "type": "string",
                        "example": None,
                        "default": "",
                        "sensitive": option.secret,
                    }
                    for option in OPTIONS
                },
            }
        },
    }
