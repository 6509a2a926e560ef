"""The ``kubernetes`` scheduler: TorchX's apps as jobs of Volcano, told of in full.

TorchX has one, too, and renders the request here as well; what that does not tell (why a pod waits,
how it ended) decides what follows: see ``docs/kubernetes.md``. Kubernetes' own client is imported
when a scheduler is made.
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_ett.launch.schedulers.kubernetes.scheduler import Kubernetes

NAME = "kubernetes"

EXTRA = "airflow-ett[kubernetes]"
"""What has the client."""


def create_scheduler(
    session_name: str, *, kubeconfig: str | None = None, docker_client: Any = None, **_: object
) -> Kubernetes:
    """TorchX's factory. ``kubeconfig`` is a file in place of the one that would be found.

    Raises ``ImportError`` where the client is missing.
    """
    if importlib.util.find_spec("kubernetes") is None:
        raise ImportError(f"install {EXTRA}")
    from airflow_ett.launch.schedulers.kubernetes.cluster import cluster
    from airflow_ett.launch.schedulers.kubernetes.scheduler import Kubernetes

    return Kubernetes(session_name, cluster(kubeconfig), docker_client)
