"""The requests that are made of the API server, through Kubernetes' own client: a thin edge.

Answers are plain data, as the server writes them, so that what reads them knows no client. The
server is found by a kubeconfig that is named; without one, as TorchX finds it: inside a cluster by
the pod's service account, elsewhere by ``~/.kube/config``. Safe to use from several threads.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from kubernetes.config import ConfigException
from urllib3.exceptions import HTTPError

from airflow_ett.errors import LaunchError

Thing: TypeAlias = dict[str, Any]
"""One object of Kubernetes, as JSON has it."""

APP_LABEL = "airflow-ett/app"
"""What jobs, pods and Secrets of an app are found by."""

_TIMEOUT_S = (5.0, 30.0)
"""To connect, and for each part of an answer."""

_NAMES = 100
"""Apps named in one request: its address must not become too long for what lies in between."""

_JOBS = {"group": "batch.volcano.sh", "version": "v1alpha1", "plural": "jobs"}
_GROUPS = {"group": "scheduling.volcano.sh", "version": "v1beta1", "plural": "podgroups"}


def answered(error: LaunchError) -> int:
    """Return HTTP's status by which the API server refused; 0 where it did not answer at all."""
    cause = error.__cause__
    return int(cause.status or 0) if isinstance(cause, ApiException) else 0


class Api:
    """One API server; ``kubeconfig`` is the file that names it."""

    def __init__(self, kubeconfig: str | None = None) -> None:
        self._kubeconfig = kubeconfig
        self._client: client.ApiClient | None = None
        self._lock = threading.Lock()

    @property
    def server(self) -> str:
        """The server's address. Raises :class:`LaunchError` where none is configured."""
        return str(self._connected().configuration.host)

    @property
    def namespace(self) -> str:
        """The namespace of the kubeconfig's context, ``default`` where it names none."""
        with contextlib.suppress(ConfigException, KeyError, TypeError):
            _, active = config.list_kube_config_contexts(  # type: ignore[no-untyped-call]
                self._kubeconfig
            )
            return str(active["context"]["namespace"])
        return "default"

    def create_job(self, namespace: str, job: Thing, *, dry_run: bool = False) -> Thing:
        """Make a Volcano job; ``dry_run``: have it only checked."""
        more = {"dry_run": "All"} if dry_run else {}
        return self._custom("create_namespaced", _JOBS, namespace, body=job, **more)

    def job(self, namespace: str, name: str) -> Thing | None:
        """Return a Volcano job, None where there is none."""
        with _absent():
            return self._custom("get_namespaced", _JOBS, namespace, name=name)
        return None

    def jobs(self, namespace: str, apps: Iterable[str]) -> list[Thing]:
        """Return the Volcano jobs of these apps."""
        return self._listed(
            apps, lambda which: self._custom("list_namespaced", _JOBS, namespace, **which)
        )

    def all_jobs(self, namespace: str) -> list[Thing]:
        """Return the Volcano jobs of all our apps."""
        which = {"label_selector": APP_LABEL}
        return list(self._custom("list_namespaced", _JOBS, namespace, **which)["items"])

    def pods(self, namespace: str, apps: Iterable[str]) -> list[Thing]:
        """Return the pods of these apps."""

        def ask(which: Mapping[str, str]) -> Thing:
            return self._core("list_namespaced_pod", namespace, **which)

        return self._listed(apps, ask)

    def group(self, namespace: str, name: str) -> Thing | None:
        """Return a pod group, by which Volcano queues a job; None where there is none."""
        with _absent():
            return self._custom("get_namespaced", _GROUPS, namespace, name=name)
        return None

    def events(self, namespace: str, pod: str) -> list[Thing]:
        """Return what was noted of a pod in the last hour or so, though it may be gone."""
        which = f"involvedObject.kind=Pod,involvedObject.name={pod}"
        return list(self._core("list_namespaced_event", namespace, field_selector=which)["items"])

    def abort(self, namespace: str, name: str) -> None:
        """Have Volcano end a job's pods and keep the job, in the way in which TorchX does.

        It ends those of a job that somebody has deleted by itself.
        """
        body = {"status": {"state": {"phase": "Aborted"}}}
        with _absent():
            self._custom("patch_namespaced", _JOBS, namespace, "_status", name=name, body=body)

    def put_secret(self, namespace: str, secret: Thing) -> None:
        """Make a Secret, or replace the one of its name."""
        try:
            self._core("create_namespaced_secret", namespace, body=secret)
        except LaunchError as refused:
            if answered(refused) != 409:
                raise
            name = secret["metadata"]["name"]
            self._core("replace_namespaced_secret", namespace, name=name, body=secret)

    def own_secret(self, namespace: str, name: str, owner: Thing) -> None:
        """Have a Secret go when ``owner`` goes."""
        body = {"metadata": {"ownerReferences": [owner]}}
        self._core("patch_namespaced_secret", namespace, name=name, body=body)

    def delete_secret(self, namespace: str, name: str) -> None:
        """Remove a Secret, if there is one."""
        with _absent():
            self._core("delete_namespaced_secret", namespace, name=name)

    def log(self, namespace: str, pod: str, **options: Any) -> bytes:
        """Return what a pod's container has printed, each line after its time.

        ``options``: ``container``, ``since_seconds``, ``limit_bytes``, ``tail_lines``.
        """
        core = client.CoreV1Api(self._connected())
        return self._call(
            core.read_namespaced_pod_log, namespace=namespace, name=pod, timestamps=True, **options
        )

    def _listed(
        self, apps: Iterable[str], ask: Callable[[Mapping[str, str]], Thing]
    ) -> list[Thing]:
        names, found = sorted(apps), []
        for first in range(0, len(names), _NAMES):
            some = ",".join(names[first : first + _NAMES])
            found += ask({"label_selector": f"{APP_LABEL} in ({some})"})["items"]
        return found

    def _core(self, method: str, namespace: str, **options: Any) -> Thing:
        call = getattr(client.CoreV1Api(self._connected()), method)
        return _read(self._call(call, namespace=namespace, **options))

    def _custom(
        self, verb: str, kind: Mapping[str, str], namespace: str, part: str = "", **options: Any
    ) -> Thing:
        call = getattr(client.CustomObjectsApi(self._connected()), f"{verb}_custom_object{part}")
        return _read(self._call(call, **kind, namespace=namespace, **options))

    def _call(self, call: Callable[..., Any], **options: Any) -> bytes:
        try:
            answer = call(**options, _preload_content=False, _request_timeout=_TIMEOUT_S)
            data: bytes = answer.data
            return data
        except ApiException as error:
            if error.status == _EXPIRED:
                with self._lock:
                    self._client = None  # the next request reads them again
            raise LaunchError(_told(error)) from error
        except (HTTPError, OSError) as error:
            problem = f"the API server at {self.server} gave no answer: {error}"
            raise LaunchError(problem) from error

    def _connected(self) -> client.ApiClient:
        with self._lock:
            if self._client is None:
                self._client = client.ApiClient(self._configuration())
            return self._client

    def _configuration(self) -> client.Configuration:
        found = client.Configuration()
        try:
            if self._kubeconfig is None:
                with contextlib.suppress(ConfigException):
                    config.load_incluster_config(  # type: ignore[no-untyped-call]
                        client_configuration=found
                    )
                    return found
            config.load_kube_config(  # type: ignore[no-untyped-call]
                self._kubeconfig, client_configuration=found
            )
        except ConfigException as error:
            raise LaunchError(
                f"no API server is configured: {error} Workers and triggerers need a kubeconfig "
                "(KUBECONFIG), or run in the cluster with a service account"
            ) from error
        return found


@contextlib.contextmanager
def _absent() -> Iterator[None]:
    """Go on where the server says that there is no such thing."""
    try:
        yield
    except LaunchError as refused:
        if answered(refused) != 404:
            raise


def _read(data: bytes) -> Thing:
    try:
        found: Thing = json.loads(data)
    except ValueError as error:
        raise LaunchError(f"the API server's answer is no JSON: {data[:200]!r}") from error
    return found


def _told(error: ApiException) -> str:
    """Return the server's own sentence, and what to do where it is about rights."""
    with contextlib.suppress(ValueError, TypeError, AttributeError):
        said = json.loads(error.body or "")["message"]
        return f"the API server refused ({error.status}): {said}{_ADVICE.get(error.status, '')}"
    told = str(error.reason or "") or "no reason given"
    return f"the API server refused ({error.status}): {told}{_ADVICE.get(error.status, '')}"


_EXPIRED = 401

_ADVICE: Mapping[int | None, str] = {
    _EXPIRED: ". Its credentials have expired, or are of another cluster",
    403: ". What it must allow is listed in docs/kubernetes.md (Rights)",
}


def owner_of(job: Thing) -> Thing:
    """Return a reference by which what is made for a job goes with it."""
    meta = job["metadata"]
    return {
        "apiVersion": f"{_JOBS['group']}/{_JOBS['version']}",
        "kind": "Job",
        "name": meta["name"],
        "uid": meta["uid"],
    }
