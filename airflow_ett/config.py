"""Every ``[ett]`` option and environment variable, typed, in one place.

An option is read from ``AIRFLOW__ETT__<OPTION>``, then from section ``[ett]`` of Airflow's
configuration (through Airflow itself where it is loaded or its ``_CMD`` and ``_SECRET`` forms are
used; from its ``airflow.cfg`` otherwise), then from the default.
"""

from __future__ import annotations

import configparser
import importlib
import importlib.util
import json
import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow_ett.errors import ConfigurationError

JOB_VARIABLE = "ETT_JOB"
"""Environment variable that carries the job's context to the trainer (base64url JSON)."""

TOKEN_VARIABLE = "ETT_TOKEN"
"""Environment variable that carries the trainer's secret for the API, where that has the log."""

RESTART_VARIABLE = "ETT_RESTART"
"""Environment variable by which a scheduler of ours tells how often it has started an app again."""

SWITCHES: Mapping[str, str] = {
    "compile_cache": "ETT_COMPILE_CACHE",
    "autotune": "ETT_AUTOTUNE",
    "fast_batch": "ETT_FAST_BATCH",
    "parallel_init": "ETT_PARALLEL_INIT",
    "lean_communication": "ETT_LEAN_COMMUNICATION",
    "parcels": "ETT_PARCELS",
    "warm_recovery": "ETT_WARM_RECOVERY",
    "background_saves": "ETT_BACKGROUND_SAVES",
}
"""Lever of the trainer -> the environment variable that switches it off where that says ``0``: for
comparisons, from an operator's ``env``, without touching the training's code."""

EVERY_VARIABLE = "ETT_CHECKPOINT_EVERY_S"
"""Environment variable that says how often to save: seconds, ``auto`` or ``never``. It goes before
what the training's code says."""

CREDENTIALS_VARIABLE = "ETT_REGISTRY_CREDENTIALS"
"""Environment variable that carries a model registry's credentials to the publisher: JSON with
``login``, ``password`` and ``token``."""

UNNAMED = "default"
"""A deployment that nobody has named."""


@dataclass(frozen=True, slots=True)
class Option:
    """One ``[ett]`` option: its name, what it means, and its default as text.

    Airflow never shows a ``secret`` one, and reads it from a command or a secrets backend, too.
    """

    name: str
    help: str
    default: str
    secret: bool = False


OPTIONS: tuple[Option, ...] = (
    Option(
        "deployment",
        "Name of this Airflow deployment; part of every job's identity, so that staging never "
        "adopts production's job. Required once trainings run on a cluster.",
        UNNAMED,
    ),
    Option(
        "run_root",
        "Folder of the run directories (job logs, claims, cursors), or an fsspec URI such as "
        "s3://bucket/runs. Workers, triggerers and trainers must all see it.",
        "{AIRFLOW_HOME}/ett/runs",
    ),
    Option(
        "checkpoint_root",
        "Folder of the checkpoints; empty keeps them in the run directory.",
        "",
    ),
    Option(
        "cache_root",
        "Folder or fsspec URI of what trainings leave for later ones (compile caches, batch "
        "specifications), below it a folder per deployment and DAG. Trainers write it, and nobody "
        "else may. Empty: {AIRFLOW_HOME}/ett/cache where run_root is a folder, else nothing is "
        "kept.",
        "",
    ),
    Option(
        "local_state_dir",
        "Folder in which the local_detached scheduler keeps its apps.",
        "{AIRFLOW_HOME}/ett/local",
    ),
    Option(
        "slurm_state_dir",
        "Folder in which the slurm scheduler keeps its apps: scripts, environment and output. "
        "Workers, triggerers and the cluster's nodes must all see it; through ssh it lies on the "
        "cluster, by default in ~/ett/slurm.",
        "{AIRFLOW_HOME}/ett/slurm",
    ),
    Option(
        "resources",
        "Names for what trainings ask of a node, and for what each scheduler is told then (JSON): "
        '{"h100.8": {"cpu": 96, "gpu": 8, "memMB": 900000, "cfg": {"slurm": {"partition": "h100"}'
        "}}}.",
        "",
    ),
    Option(
        "sql_alchemy_conn",
        "Database of the ETT% tables. SQLite suits one machine; production uses Postgres.",
        "sqlite:///{AIRFLOW_HOME}/ett/ett.db",
    ),
    Option("timezone", "Zone of the rollup's day buckets (an IANA name).", "UTC"),
    Option(
        "component_owners",
        "Who owns which component of ETT%, such as `pt2_compile=compiler-team, wasted=storage`.",
        "",
    ),
    Option(
        "phase_components",
        "Phases to move or to add to a component, such as `evaluation=shutdown, "
        "my_warmup=trainer_init`. `effective` and `unattributed` stay as they are.",
        "",
    ),
    Option(
        "reaper",
        "What the rollup DAG does about trainings whose Airflow task is over: `report` or `cancel` "
        "them.",
        "report",
    ),
    Option(
        "api_url",
        "Address of the Airflow API server, such as https://airflow.example.com. Where it is set, "
        "the API holds the job logs, and no shared storage is needed; empty: run_root does.",
        "",
    ),
    Option(
        "api_secret",
        "Secret that signs the tokens with which jobs reach their logs in the API: 32 characters "
        "or more. A second one behind a comma is still accepted, while the first signs.",
        "",
        secret=True,
    ),
    Option(
        "metrics_token",
        "Token with which a scraper reads /ett/metrics; without one, only signed-in users may.",
        "",
        secret=True,
    ),
    Option(
        "metrics_dags",
        "DAGs that a scraper is told of: ids or patterns such as `ranker, team-a-*`; `*` is every "
        "one, empty none.",
        "",
    ),
    Option(
        "publish_pool",
        "Pool of publishing tasks that name none. Empty: as for any other task.",
        "",
    ),
    Option(
        "publish_queue",
        "Queue of publishing tasks that name none, such as one of CPU workers. Empty: as for any "
        "other task.",
        "",
    ),
    Option(
        "keep_events",
        "How long a job that has ended keeps its raw events in the database after the newest one, "
        "such as 90d or 36h; its numbers stay. Empty keeps them.",
        "",
    ),
    Option(
        "keep_run_dirs",
        "How long a job that has ended keeps its run directory; what says that it has ended stays. "
        "Empty keeps it.",
        "",
    ),
    Option(
        "keep_outputs",
        "How long local_detached and slurm keep the output of an app whose job has ended. Empty "
        "keeps it.",
        "",
    ),
    Option(
        "keep_checkpoints",
        "How long a job that has ended keeps checkpoints other than its newest and its anchor. "
        "Empty keeps them, and run directories keep theirs.",
        "",
    ),
)

_REAPER_WAYS = ("report", "cancel")

_DEFAULTS = {option.name: option.default for option in OPTIONS}


@dataclass(frozen=True, slots=True)
class Settings:
    """The resolved ``[ett]`` options; paths are absolute. ``run_root`` is a text if it is a URI."""

    deployment: str
    run_root: Path | str
    checkpoint_root: str
    cache_root: str
    local_state_dir: Path
    slurm_state_dir: Path
    resources: Mapping[str, Any]
    sql_alchemy_conn: str
    timezone: str
    component_owners: Mapping[str, str]
    phase_components: Mapping[str, str]
    reaper: str
    api_url: str
    api_secret: str = field(repr=False)
    metrics_token: str = field(repr=False)
    metrics_dags: tuple[str, ...]
    publish_pool: str
    publish_queue: str
    keep_events: timedelta | None
    keep_run_dirs: timedelta | None
    keep_outputs: timedelta | None
    keep_checkpoints: timedelta | None


def airflow_home(environ: Mapping[str, str] = os.environ) -> Path:
    """Return ``AIRFLOW_HOME`` as Airflow resolves it."""
    return Path(environ.get("AIRFLOW_HOME") or "~/airflow").expanduser().absolute()


def load(environ: Mapping[str, str] = os.environ) -> Settings:
    """Resolve all options.

    Raises :class:`ConfigurationError` that names the option when a value cannot be used.
    """
    read = _reader(environ)
    home = airflow_home(environ)

    def value(name: str) -> str:
        text = environ.get(f"AIRFLOW__ETT__{name.upper()}") or read(name) or _DEFAULTS[name]
        return text.replace("{AIRFLOW_HOME}", str(home))

    deployment = value("deployment")
    if not deployment.strip():
        raise ConfigurationError("[ett] deployment", "must not be empty")
    run_root = _folder_or_uri("run_root", value("run_root"))
    api_url = _address("api_url", value("api_url"))
    shared = isinstance(run_root, Path) and not api_url
    cache_root = value("cache_root") or (f"{home}/ett/cache" if shared else "")
    return Settings(
        deployment=deployment,
        run_root=run_root,
        checkpoint_root=value("checkpoint_root"),
        cache_root=str(_folder_or_uri("cache_root", cache_root)) if cache_root else "",
        local_state_dir=_folder("local_state_dir", value("local_state_dir")),
        slurm_state_dir=_folder("slurm_state_dir", value("slurm_state_dir")),
        resources=_object("resources", value("resources")),
        sql_alchemy_conn=value("sql_alchemy_conn"),
        timezone=value("timezone"),
        component_owners=_pairs("component_owners", value("component_owners")),
        phase_components=_pairs("phase_components", value("phase_components")),
        reaper=_one_of("reaper", value("reaper"), _REAPER_WAYS),
        api_url=api_url,
        api_secret=value("api_secret").strip(),
        metrics_token=value("metrics_token").strip(),
        metrics_dags=tuple(filter(None, map(str.strip, value("metrics_dags").split(",")))),
        publish_pool=value("publish_pool").strip(),
        publish_queue=value("publish_queue").strip(),
        keep_events=_age("keep_events", value("keep_events")),
        keep_run_dirs=_age("keep_run_dirs", value("keep_run_dirs")),
        keep_outputs=_age("keep_outputs", value("keep_outputs")),
        keep_checkpoints=_age("keep_checkpoints", value("keep_checkpoints")),
    )


def _one_of(name: str, text: str, known: tuple[str, ...]) -> str:
    if text not in known:
        raise ConfigurationError(f"[ett] {name}", f"is {' or '.join(known)}, not {text!r}")
    return text


def _address(name: str, text: str) -> str:
    """Return an http(s) address without a slash at its end, or ''; one without a password."""
    address = text.strip().rstrip("/")
    host = address.partition("://")[2].partition("/")[0]
    if address and (not address.startswith(("http://", "https://")) or not host or "@" in host):
        problem = "must be an http:// or https:// address without a user or a password"
        raise ConfigurationError(f"[ett] {name}", problem)
    return address


def _age(name: str, text: str) -> timedelta | None:
    """Return the length of ``90d`` or ``36h``, None of an empty text."""
    if not text.strip():
        return None
    match = re.fullmatch(r"([1-9]\d{0,4})([dh])", text.strip(), re.ASCII)
    if match is None:
        problem = f"is a number of days or hours such as 90d or 36h, or empty, not {text!r}"
        raise ConfigurationError(f"[ett] {name}", problem)
    count = int(match[1])
    return timedelta(days=count) if match[2] == "d" else timedelta(hours=count)


def _folder(name: str, text: str) -> Path:
    path = Path(text).expanduser()
    if not path.is_absolute():
        raise ConfigurationError(f"[ett] {name}", f"must be an absolute path, not {text!r}")
    return path


def _folder_or_uri(name: str, text: str) -> Path | str:
    """Return a folder, or an fsspec URI without a slash at its end; one without a password."""
    scheme, _, rest = text.partition("://")
    if not rest or scheme == "file":
        return _folder(name, rest or text)
    if scheme in ("http", "https"):
        raise ConfigurationError(f"[ett] {name}", "is a folder or a URI; the API is [ett] api_url")
    if "@" in rest.partition("/")[0]:
        problem = f"must be a {scheme}:// URI without a user or a password"
        raise ConfigurationError(f"[ett] {name}", problem)
    return text.rstrip("/")


def _object(name: str, text: str) -> dict[str, Any]:
    """Return a JSON object, empty of an empty text."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        keys = [key for key, _ in pairs]
        if twice := [key for key in keys if keys.count(key) > 1]:
            raise ConfigurationError(f"[ett] {name}", f"{twice[0]!r} is given twice")
        return dict(pairs)

    try:
        found = json.loads(text, object_pairs_hook=once) if text.strip() else {}
    except ValueError as error:
        raise ConfigurationError(f"[ett] {name}", f"is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise ConfigurationError(f"[ett] {name}", "must be a JSON object, such as {}")
    return found


def _pairs(name: str, text: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for entry in filter(None, map(str.strip, text.split(","))):
        left, _, right = map(str.strip, entry.partition("="))
        if not left or not right:
            problem = f"{entry!r} is not of the form name=name; entries are separated by commas"
            raise ConfigurationError(f"[ett] {name}", problem)
        if left in pairs:
            raise ConfigurationError(f"[ett] {name}", f"{left!r} is given twice")
        pairs[left] = right
    return pairs


def _reader(environ: Mapping[str, str]) -> Callable[[str], str]:
    """Return a function from option name to its configured text, or to '' where unset."""
    home = airflow_home(environ)
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(environ.get("AIRFLOW_CONFIG") or home / "airflow.cfg")
    section = dict(parser["ett"]) if parser.has_section("ett") else {}
    if environ is os.environ and _needs_airflow(section, environ):
        conf = importlib.import_module("airflow.configuration").conf
        return lambda name: _by_airflow(conf, name)
    return lambda name: section.get(name, "")


def _by_airflow(conf: Any, name: str) -> str:
    try:
        return str(conf.get("ett", name, fallback="") or "")
    except configparser.InterpolationError:  # it quotes the value, which may be a secret
        problem = "cannot be read: in airflow.cfg, % is written %%"
        raise ConfigurationError(f"[ett] {name}", problem) from None


def _needs_airflow(section: Mapping[str, str], environ: Mapping[str, str]) -> bool:
    """Airflow's own reader takes seconds to import: ask it where it is there already, or where a
    value has a form that only it resolves."""
    if "airflow.configuration" in sys.modules:
        return True
    names = [*section, *(n.lower() for n in environ if n.startswith("AIRFLOW__ETT__"))]
    special = any(n.endswith(("_cmd", "_secret")) for n in names if n not in _DEFAULTS)
    special = special or any("%" in value or "$" in value for value in section.values())
    return special and importlib.util.find_spec("airflow") is not None
