"""MLflow's model registry, at a tracking server or whatever else MLflow keeps its records in.

A version is a model version of the registered model, whose number is MLflow's and whose tag
``ett.version`` is ours. Its files are artifacts of a run: they are uploaded first, and the model
version is made last, so readers see it whole or not at all. Of two publishers of one version the
lower number wins; the other removes its own. MLflow reserves the alias ``latest``, so ours is
``ett-latest``: ``models:/<name>@ett-latest`` is what a server loads.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from airflow_ett.errors import ConfigurationError, PublishError
from airflow_ett.publish.credentials import Credentials, read_credentials, require_no_secrets
from airflow_ett.publish.registries.protocol import MANIFEST_FILE, Age, Snapshot
from airflow_ett.publish.registries.staging import Staging

ALIAS = "ett-latest"

_MODEL, _VERSION, _CHECKPOINT = "ett.model", "ett.version", "ett.checkpoint"
_SAVED, _CURSOR, _DIGEST = "ett.saved_ns", "ett.cursor", "ett.digest"
_FOLDER = "model"
_EXPERIMENT = "airflow-ett publish"
_URI_VARIABLE = "MLFLOW_TRACKING_URI"
_ABANDONED_MS = 24 * 3600 * 1000
_DENIED = frozenset({401, 403})
_MOST_TRIES = 5
_DETAIL_LENGTH = 500


class MlflowRegistry:
    """One registered model, at a tracking URI; an empty one: what the environment names.

    How often and how long MLflow tries is its own: ``MLFLOW_HTTP_REQUEST_MAX_RETRIES`` and
    ``MLFLOW_HTTP_REQUEST_TIMEOUT``. Raises :class:`ConfigurationError`.
    """

    def __init__(self, uri: str, name: str) -> None:
        require_no_secrets(uri)
        if uri and urlsplit(uri).scheme not in ("http", "https"):
            raise ConfigurationError("registry", "write mlflow+http://…, mlflow+https://…, mlflow:")
        if not uri and not os.environ.get(_URI_VARIABLE):
            raise ConfigurationError("registry", f"`mlflow:` needs {_URI_VARIABLE} to be set")
        # Whom MLflow reports its use to is not for a publisher to decide; it may be set to false.
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        try:
            from mlflow import MlflowClient
            from mlflow.exceptions import MlflowException
        except ImportError as error:
            raise ConfigurationError(
                "registry", "needs the package mlflow-skinny: install `airflow-ett[mlflow]`"
            ) from error
        self._name = name
        self._credentials = read_credentials()
        try:
            self._client = MlflowClient(uri or None)
        except MlflowException as error:
            problem = f"MLflow cannot use its tracking URI: {error}"
            raise ConfigurationError("registry", self._credentials.redact(problem)) from error
        self._staging = Staging.on_this_host()

    def find(self, version: str) -> Snapshot | None:
        """Return a published version, or None where there is none.

        The sizes of its files are compared; MLflow tells no digests.
        """
        with self._asking():
            found = self._versions(version)
            return self._read(found[0]) if found else None

    def staging(self, version: str) -> AbstractContextManager[Path]:
        """Give an empty folder among this host's temporary files, and remove it after."""
        return self._staging.folder(version)

    def reveal(self, staged: Path, version: str) -> bool:
        """Upload the files, then make the model version; False where another was first."""
        snapshot = Snapshot.decode(version, (staged / MANIFEST_FILE).read_bytes())
        with self._asking():
            run = self._upload(staged, version)
            self._register(snapshot, run)
            first, *others = self._versions(version)
            for other in others:
                if other.run_id == run:
                    self._client.delete_model_version(self._name, other.version)
            if first.run_id != run:
                self._client.delete_run(run)
                return False
            self._client.set_terminated(run)
        return True

    def point_latest(self, snapshot: Snapshot, *, force: bool = False) -> bool:
        """Let the alias name this version, unless it names a newer one and ``force`` is not set.

        Returns whether it names this version now. MLflow cannot move an alias from what it was:
        what another publisher does in the same moment is found by looking again.
        """
        number = snapshot.uri.rpartition("/")[2]
        with self._asking():
            for _ in range(_MOST_TRIES):
                latest = self._latest()
                if latest is not None and latest.version == number:
                    return True
                age = None if latest is None else _age(latest.tags)
                if age is not None and age > snapshot.age and not force:
                    return False
                self._client.set_registered_model_alias(self._name, ALIAS, number)
        raise self._failure(f"others keep moving the alias {ALIAS}; publish again")

    def sweep(self) -> None:
        """Remove what publishers that died have left: folders here, and runs older than a day."""
        self._staging.sweep()
        with self._asking():
            experiment = self._client.get_experiment_by_name(_EXPERIMENT)
            if experiment is None:
                return
            before_ms = int(time.time() * 1000) - _ABANDONED_MS
            unfinished = (
                f"tags.`{_MODEL}` = '{self._name}' and attributes.status = 'RUNNING' "
                f"and attributes.start_time < {before_ms}"
            )
            for run in self._client.search_runs([experiment.experiment_id], unfinished):
                run_id = run.info.run_id
                if not self._client.search_model_versions(f"run_id = '{run_id}'"):
                    self._client.delete_run(run_id)

    def _upload(self, staged: Path, version: str) -> str:
        """Make a run with the files as its artifacts; return its id."""
        tags = {_MODEL: self._name, _VERSION: version}
        created = self._client.create_run(
            self._experiment(), tags=tags, run_name=f"publish {self._name} {version}"
        )
        run: str = created.info.run_id
        try:
            self._client.log_artifacts(run, str(staged), _FOLDER)
        except BaseException:
            with contextlib.suppress(Exception):  # the first failure says more
                self._client.delete_run(run)
            raise
        return run

    def _register(self, snapshot: Snapshot, run: str) -> None:
        with _unless_there():
            self._client.create_registered_model(self._name)
        tags = {
            _VERSION: snapshot.version,
            _SAVED: str(snapshot.age.saved_ns),
            _CURSOR: str(snapshot.age.cursor),
            _DIGEST: snapshot.digest,
            _CHECKPOINT: str(snapshot.manifest["source"]["checkpoint"]),
        }
        self._client.create_model_version(self._name, f"runs:/{run}/{_FOLDER}", run, tags=tags)

    def _versions(self, version: str) -> list[Any]:
        """Return MLflow's model versions that are of this version of ours, the winner first."""
        wanted = f"name = '{self._name}' and tags.`{_VERSION}` = '{version}'"
        return sorted(self._client.search_model_versions(wanted), key=lambda v: int(v.version))

    def _read(self, found: Any) -> Snapshot:
        uri = f"models:/{self._name}/{found.version}"
        sizes = {
            Path(file.path).name: file.file_size
            for file in self._client.list_artifacts(found.run_id, _FOLDER)
        }
        if MANIFEST_FILE not in sizes:
            raise self._damaged(uri, f"{MANIFEST_FILE} is missing")
        with tempfile.TemporaryDirectory() as folder:
            path = f"{_FOLDER}/{MANIFEST_FILE}"
            content = Path(self._client.download_artifacts(found.run_id, path, folder)).read_bytes()
        try:
            snapshot = Snapshot.decode(uri, content)
        except ValueError as error:
            raise self._damaged(uri, error) from error
        for name, digest in snapshot.files.items():
            if sizes.get(name) != digest.size:
                problem = f"{name} has {sizes.get(name)} bytes instead of {digest.size}"
                raise self._damaged(uri, problem)
        return snapshot

    def _latest(self) -> Any:
        """Return the model version that the alias names, None where it names none."""
        number = self._client.get_registered_model(self._name).aliases.get(ALIAS)
        return None if number is None else self._client.get_model_version(self._name, number)

    def _experiment(self) -> str:
        """Return the id of the experiment that the runs are in."""
        with _unless_there():
            self._client.create_experiment(_EXPERIMENT)
        experiment: str = self._client.get_experiment_by_name(_EXPERIMENT).experiment_id
        return experiment

    @contextlib.contextmanager
    def _asking(self) -> Iterator[None]:
        """Sign in for some requests; what fails is told as our own error."""
        try:
            with _signed_in(self._credentials):
                yield
        except PublishError:
            raise
        except Exception as error:  # MLflow's, requests', or of the store of its artifacts
            detail = self._credentials.redact(str(error))[:_DETAIL_LENGTH]
            told = f"{type(error).__name__}: {detail}"
            advice = (
                "check the login or token of the registry's connection, and its rights there"
                if _status(error) in _DENIED
                else "check the tracking URI, or publish again once it answers"
            )
            raise self._failure(f"{told}; {advice}") from error

    def _damaged(self, uri: str, problem: object) -> PublishError:
        return self._failure(f"{uri} is damaged: {problem}; delete it there and publish again")

    def _failure(self, text: str) -> PublishError:
        told = f"MLflow at {self._client.tracking_uri}, model {self._name}: {text}"
        return PublishError(" ".join(self._credentials.redact(told).split()))


def _age(tags: Mapping[str, str]) -> Age | None:
    """Return how new a model version is; None for one that is not ours."""
    try:
        return Age(int(tags[_SAVED]), int(tags[_CURSOR]))
    except (KeyError, ValueError):
        return None


def _status(error: Exception) -> int | None:
    """Return the HTTP status that an error of MLflow or of requests tells, if any."""
    if hasattr(error, "get_http_status_code"):
        return int(error.get_http_status_code())
    return getattr(getattr(error, "response", None), "status_code", None)


@contextlib.contextmanager
def _unless_there() -> Iterator[None]:
    from mlflow.exceptions import MlflowException

    try:
        yield
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise


@contextlib.contextmanager
def _signed_in(credentials: Credentials) -> Iterator[None]:
    """Give MLflow the credentials, which it reads from the environment at each request.

    They are there for the requests alone: the processes of the user's code never inherit them.
    """
    if not (credentials.token or credentials.login):
        yield
        return
    by_login = "" if credentials.token else credentials.login
    given = {
        "MLFLOW_TRACKING_TOKEN": credentials.token,
        "MLFLOW_TRACKING_USERNAME": by_login,
        "MLFLOW_TRACKING_PASSWORD": by_login and credentials.password,
    }
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value
