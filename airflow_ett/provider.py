"""What Airflow asks a provider for: names, options, connection types."""

from __future__ import annotations

from typing import Any

from airflow_ett import __version__
from airflow_ett.config import OPTIONS


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
            {"integration-name": "ETT", "python-modules": ["airflow_ett.triggers.training"]}
        ],
        "hooks": [{"integration-name": "ETT", "python-modules": ["airflow_ett.hooks.torchx"]}],
        "connection-types": [
            {
                "connection-type": "torchx",
                "hook-class-name": "airflow_ett.hooks.torchx.TorchXHook",
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
                    }
                    for option in OPTIONS
                },
            }
        },
    }
