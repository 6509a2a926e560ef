"""A cluster as this process reaches it: one for all that watch its apps here."""

from __future__ import annotations

import os
import threading

from airflow_ett.launch.schedulers.kubernetes.api import Api
from airflow_ett.launch.schedulers.kubernetes.asking import Asking


class Cluster:
    """Safe to use from several threads."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self._asked: dict[str, Asking] = {}
        self._lock = threading.Lock()

    def asking(self, namespace: str) -> Asking:
        """Return what asks for the apps of a namespace."""
        with self._lock:
            if namespace not in self._asked:
                self._asked[namespace] = Asking(self.api, namespace)
            return self._asked[namespace]


class _Clusters:
    """The clusters of this process, made when first needed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: dict[str, Cluster] = {}

    def get(self, kubeconfig: str) -> Cluster:
        with self._lock:
            if kubeconfig not in self._made:
                self._made[kubeconfig] = Cluster(Api(kubeconfig or None))
            return self._made[kubeconfig]


_clusters = _Clusters()


def cluster(kubeconfig: str | None = None) -> Cluster:
    """Return the cluster of a kubeconfig; default: ``KUBECONFIG``, or whatever TorchX would find.

    There is one of each in a process, whoever asks.
    """
    return _clusters.get(kubeconfig or os.environ.get("KUBECONFIG") or "")


def _forget() -> None:
    """Begin anew in a child: a connection has one owner."""
    global _clusters
    _clusters = _Clusters()


os.register_at_fork(after_in_child=_forget)
