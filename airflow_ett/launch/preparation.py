"""From an operator's parameters to a TorchX app, and errors that name the parameter at fault."""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import importlib.util
import inspect
import io
import itertools
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torchx.specs
from torchx.schedulers import DEFAULT_SCHEDULER_MODULES
from torchx.schedulers.api import Scheduler
from torchx.specs import AppDef, Resource
from torchx.specs.builders import materialize_appdef
from torchx.specs.finder import get_component

from airflow_ett import config
from airflow_ett.errors import ConfigurationError
from airflow_ett.launch import components, resources
from airflow_ett.launch.schedulers import local_detached

SchedulerFactory = Callable[..., Scheduler]

_OWN_COMPONENTS: Mapping[str, Callable[..., AppDef]] = {"train": components.train}
_NOT_DURABLE = "local_cwd"
_KUBERNETES = "kubernetes"
_PACKAGES: Mapping[str, str] = {
    "slurm": "airflow_ett.launch.schedulers.slurm",
    _KUBERNETES: "airflow_ett.launch.schedulers.kubernetes",
    "local_docker": "airflow_ett.launch.schedulers.docker",
}
"""Our schedulers that take a while to import."""

_RESOURCE_KEYS = ("cpu", "gpu", "memMB")
# TorchX parses components' source code and prints; neither is safe in threads.
_one_at_a_time = threading.Lock()
# Clients that import each other's parts, begun in two threads, see modules that are not whole.
_importing = threading.Lock()


def scheduler_factories() -> dict[str, SchedulerFactory]:
    """Return the factory of every installed scheduler by name; nothing is constructed.

    Ours win over TorchX's own, and those over registered plugins. ``local_cwd`` is left out: it
    forgets its apps with the process that launched them.
    """
    plugins = torchx.schedulers.get_scheduler_factories(skip_defaults=True)
    built_in = {name: _deferred(path) for name, path in DEFAULT_SCHEDULER_MODULES.items()}
    ours = {name: _deferred(path) for name, path in _PACKAGES.items()}
    ours[local_detached.NAME] = local_detached.create_scheduler
    factories = {**plugins, **built_in, **ours}
    factories.pop(_NOT_DURABLE, None)
    return factories


def check_scheduler(name: str, known: Mapping[str, SchedulerFactory]) -> None:
    """Raise :class:`ConfigurationError` unless the scheduler is known and durable."""
    if name == _NOT_DURABLE:
        raise ConfigurationError(
            "scheduler",
            f"{name} forgets its apps with the process that launched them; use "
            f"{local_detached.NAME} instead",
        )
    if name not in known:
        raise ConfigurationError(
            "scheduler", f"there is no {name!r}; installed: {', '.join(sorted(known))}"
        )


def build_app(component: str, arguments: Sequence[str] | Mapping[str, Any] | None = None) -> AppDef:
    """Return the app that a component makes of its arguments.

    Arguments are a command line, or values by parameter name (``script_args`` or whatever the
    component calls its rest takes a list). Raises :class:`ConfigurationError` that names
    ``component`` or ``component_args``.
    """
    with _one_at_a_time:
        return _build_app(component, arguments or [])


def _build_app(component: str, arguments: Sequence[str] | Mapping[str, Any]) -> AppDef:
    function = _find_component(component)
    line, values = _split(component, function, arguments)
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            return materialize_appdef(function, line, None, values)
    except SystemExit:
        # TorchX parses with argparse, which prints and exits.
        text = complaint.getvalue().strip().rpartition("error: ")[2]
        raise ConfigurationError("component_args", f"{component}: {text}") from None
    except Exception as error:
        raise ConfigurationError("component_args", f"{component}: {error}") from error


def literal(env: Mapping[str, str]) -> dict[str, str]:
    """Return variables such that their values arrive as they are.

    TorchX fills its macros in (``${app_id}`` and the like), and would make one dollar sign of two.
    """
    return {name: value.replace("$$", "$$$$") for name, value in env.items()}


def build_resource(resource: str | Mapping[str, int]) -> Resource:
    """Return a resource that TorchX has a name for, or one of ``cpu``, ``gpu`` and ``memMB``.

    Names of ``[ett] resources`` are resolved before. Raises :class:`ConfigurationError` that names
    ``resource``.
    """
    if isinstance(resource, str):
        try:
            return torchx.specs.resource(h=resource)
        except KeyError:
            problem = resources.unknown(config.load().resources, resource)
            raise ConfigurationError("resource", problem) from None
    unknown = sorted(set(resource) - set(_RESOURCE_KEYS))
    if unknown:
        raise ConfigurationError(
            "resource", f"unknown {', '.join(unknown)}; known are {', '.join(_RESOURCE_KEYS)}"
        )
    for name, number in resource.items():
        if isinstance(number, bool) or not isinstance(number, int):
            raise ConfigurationError("resource", f"{name} must be a whole number, not {number!r}")
    return torchx.specs.resource(**resource)


def validate_static(
    component: str,
    scheduler: str,
    cfg: Mapping[str, Any] | None = None,
    resource: str | Mapping[str, int] | None = None,
    component_args: Sequence[str] | Mapping[str, Any] | None = None,
) -> None:
    """Check what can be known when a DAG is parsed, without running anything of the user's.

    Templated values and other tasks' outputs are left for the run. A script can be missed only by a
    local scheduler and an absolute path. Raises :class:`ConfigurationError` that names the
    parameter.
    """
    check_installed()
    if not late(scheduler):
        check_scheduler(scheduler, scheduler_factories())
    if not late(component):
        _check_component(component)
    given = {} if late(cfg) else {k: v for k, v in (cfg or {}).items() if not late(v)}
    if not late(scheduler):
        _check_options(scheduler, given)
    if resource is not None and not late(resource):
        _check_resource(resource, "" if late(scheduler) else scheduler, given)
    if scheduler == local_detached.NAME:
        check_script([] if late(component_args) else component_args or [])


def _check_resource(
    resource: str | Mapping[str, int], scheduler: str, cfg: Mapping[str, Any]
) -> None:
    """Check a resource, what it tells each scheduler, and whether ``cfg`` contradicts it.

    ``scheduler`` is empty where it is not known yet.
    """
    named = resources.find(config.load().resources, resource)
    if named is None:
        _check_gpus(scheduler, cfg, build_resource(resource).gpu)
        return
    gpu = named.numbers["gpu"]
    for name, terms in named.cfg.items():
        try:
            check_scheduler(name, scheduler_factories())
            if name == scheduler:
                _check_options(name, terms)
                _check_gpus(name, terms, gpu)
        except ConfigurationError as error:
            problem = f"{resource}, cfg of {name}: {error.problem}"
            raise ConfigurationError(resources.OPTION, problem) from error
    _check_gpus(scheduler, {**named.cfg.get(scheduler, {}), **cfg}, gpu)


def _check_gpus(scheduler: str, cfg: Mapping[str, Any], gpu: int) -> None:
    """Raise :class:`ConfigurationError` where ``cfg`` asks for another number of GPUs a node."""
    if scheduler != "slurm" or not cfg.get("gres"):
        return
    from airflow_ett.launch.schedulers.slurm import gres

    if problem := gres.contradiction(str(cfg["gres"]), gpu):
        raise ConfigurationError("cfg", problem)


def _check_options(scheduler: str, cfg: Mapping[str, Any]) -> None:
    """Check what is given of the run options of a scheduler of ours; another's are not known here.

    What is missing may come from a connection, or from a resource.
    """
    if (options := _run_options(scheduler)) is not None:
        elsewhere = {name: option.opt_type() for name, option in options if option.is_required}
        check_cfg(options, {**elsewhere, **cfg})
    if scheduler == _KUBERNETES:
        importlib.import_module(f"{_PACKAGES[scheduler]}.options").check(cfg)


def _run_options(scheduler: str) -> Any:
    """Return the run options of a scheduler of ours, None of another's."""
    if scheduler in _PACKAGES:
        return importlib.import_module(f"{_PACKAGES[scheduler]}.options").RUN_OPTIONS
    return local_detached.RUN_OPTIONS if scheduler == local_detached.NAME else None


def check_installed() -> None:
    """Raise :class:`ConfigurationError` when TorchX is installed twice: one overwrites the other.

    ``torchx`` 0.7.0 pins urllib3 1, which Airflow's providers cannot live with.
    """
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        versions = [
            f"{name} {importlib.metadata.version(name)}" for name in ("torchx-nightly", "torchx")
        ]
        raise ConfigurationError(
            "torchx",
            f"{' and '.join(versions)} are installed side by side and share their files; "
            "uninstall both, then install torchx-nightly alone",
        )


def check_cfg(options: Any, cfg: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``cfg`` with the defaults of a scheduler's ``runopts``.

    Raises :class:`ConfigurationError` that names ``cfg``.
    """
    try:
        resolved: dict[str, Any] = options.resolve(cfg)
    except torchx.specs.InvalidRunConfigException as error:
        raise wrong_cfg(error) from None
    return resolved


def wrong_cfg(error: torchx.specs.InvalidRunConfigException) -> ConfigurationError:
    """Return what is wrong with ``cfg``, without the other options' values: any may be a secret."""
    return ConfigurationError("cfg", str(error).partition(". Given: ")[0])


def check_script(arguments: Sequence[str] | Mapping[str, Any], folder: Path | None = None) -> None:
    """Raise :class:`ConfigurationError` when a local script is missing.

    A relative path can be judged only where ``folder`` is known.

    Components name a script by the parameter ``script``, as TorchX's own do.
    """
    script = _script(arguments)
    if script is None or late(script) or not (folder or Path(script).is_absolute()):
        return
    path = (folder or Path()) / script
    if not path.is_file():
        raise ConfigurationError("component_args", f"there is no script {path}")


def _script(arguments: Sequence[str] | Mapping[str, Any]) -> str | None:
    if isinstance(arguments, Mapping):
        return arguments.get("script")
    own = list(itertools.takewhile(lambda argument: argument != "--", arguments))
    for argument, following in itertools.pairwise([*map(str, own), ""]):
        if argument == "--script":
            return following
        if argument.startswith("--script="):
            return argument.partition("=")[2]
    return None


def _deferred(path: str) -> SchedulerFactory:
    def create(session_name: str, **kwargs: object) -> Scheduler:
        with _importing:
            return importlib.import_module(path).create_scheduler(session_name, **kwargs)

    return create


def _find_component(name: str) -> Callable[..., AppDef]:
    if name in _OWN_COMPONENTS:
        return _OWN_COMPONENTS[name]
    try:
        found: Callable[..., AppDef] = get_component(_direct(name) or name).fn
    except Exception as error:
        raise ConfigurationError("component", f"{name!r} cannot be loaded: {error}") from error
    return found


def _direct(name: str) -> str | None:
    """Return the address of one of TorchX's own components, so that only its module is loaded."""
    module, _, function = name.rpartition(".")
    registered = importlib.metadata.entry_points(group="torchx.components")
    if registered or ":" in name or not module:
        return None
    path = f"torchx.components.{module}"
    try:
        spec = importlib.util.find_spec(path)
    except ModuleNotFoundError:
        return None
    return f"{path}:{function}" if spec else None


def _check_component(name: str) -> None:
    if name in _OWN_COMPONENTS or importlib.metadata.entry_points(group="torchx.components"):
        return
    path, separator, function = name.partition(":")
    if path.endswith(".py") or "/" in path:
        if not separator or not function.isidentifier():
            raise ConfigurationError("component", f"{name!r} is not of the form path/file.py:fn")
        if Path(path).is_absolute() and not Path(path).is_file():
            raise ConfigurationError("component", f"there is no file {path}")
        return
    if _direct(name):
        _find_component(name)
        return
    address = path.split(".") + ([function] if separator else [])
    if len(address) < 2 or not all(part.isidentifier() for part in address):
        own = ", ".join(_OWN_COMPONENTS)
        raise ConfigurationError(
            "component",
            f"{name!r} is none of ours ({own}), none of TorchX's (such as dist.torchrun), and not "
            "of the form path/file.py:fn or package.module:fn",
        )
    if importlib.util.find_spec(address[0]) is None:
        raise ConfigurationError("component", f"{name!r}: there is no module {address[0]}")


def _split(
    component: str,
    function: Callable[..., AppDef],
    arguments: Sequence[str] | Mapping[str, Any],
) -> tuple[list[str], dict[str, Any]]:
    """Return a command line and the values that are none: texts are parsed as TorchX would."""
    if not isinstance(arguments, Mapping):
        return [str(argument) for argument in arguments], {}
    parameters = inspect.signature(function).parameters
    unknown = sorted(set(arguments) - set(parameters))
    if unknown:
        raise ConfigurationError(
            "component_args",
            f"{component} has no {', '.join(unknown)}; it takes {', '.join(parameters)}",
        )
    line, rest, values = [], [], {}
    for name, value in arguments.items():
        if parameters[name].kind is inspect.Parameter.VAR_POSITIONAL:
            rest = [str(item) for item in value]
        elif isinstance(value, str):
            line.append(f"--{name}={value}")
        elif value is not None:
            values[name] = value
    return [*line, *(["--", *rest] if rest else [])], values


def late(value: object) -> bool:
    """Return whether a value is known only when its task runs: a template, or Airflow's reference
    to what another task returns."""
    if isinstance(value, os.PathLike) or not hasattr(value, "resolve"):
        return any(mark in str(value) for mark in ("{{", "{%"))
    return True
