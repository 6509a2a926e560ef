"""Torch's side of a checkpoint: what is saved of which object, and how it gets back into it.

Modules and optimizers go through torch's distributed checkpoint under their plain parameter names
(compiled, wrapped or sharded as they may be), so that another world size can read them. Every other
object's state is written by the first rank into a file of its own.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from airflow_ett.errors import CheckpointError, ConfigurationError
from airflow_ett.trainer.ranks import Ranks


class Shards:
    """Named objects with ``state_dict`` and ``load_state_dict``, and how they are saved and loaded.

    Raises :class:`ConfigurationError` that names an object which cannot be saved.
    """

    def __init__(self, ranks: Ranks, objects: Mapping[str, Any]) -> None:
        import torch

        # It says so on every save and load of a single process, where that is meant.
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        self._ranks = ranks
        self._modules: dict[str, Any] = {}
        self._optimizers: dict[str, tuple[Any, Any]] = {}
        self._others: dict[str, Any] = {}
        self._stager: Any = None
        kinds = torch.nn.Module, torch.optim.Optimizer
        for name, thing in objects.items():
            if not (hasattr(thing, "state_dict") and hasattr(thing, "load_state_dict")):
                problem = f"{type(thing).__name__} has no state_dict and load_state_dict"
                raise ConfigurationError(name, problem)
            if isinstance(thing, kinds[0]):
                self._modules[name] = thing
            elif not isinstance(thing, kinds[1]):
                self._others[name] = thing
        for name, thing in objects.items():
            if isinstance(thing, kinds[1]):
                self._optimizers[name] = (self._owner(name, thing), thing)

    def save(self, folder: Path) -> Future[Any]:
        """Copy the present state and begin to write it into the new ``folder``.

        All ranks call it. The state may change once it returns; the future is done when all files
        of all ranks are written and synced. Raises what torch raises.
        """
        import torch
        import torch.distributed.checkpoint as dcp
        from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions

        if self._ranks.first:
            folder.mkdir(parents=True, exist_ok=True)
            for name, thing in self._others.items():
                with (folder / f"state-{name}.pt").open("wb") as file:
                    torch.save(thing.state_dict(), file)
                    file.flush()
                    os.fsync(file.fileno())
        if self._stager is None:
            # One for all saves: it reuses its buffers, and only the first save pays for them.
            pin = torch.cuda.is_available()
            self._stager = DefaultStager(StagingOptions(pin, False, False, pin))
        future: Future[Any] = dcp.async_save(
            self._state(),
            storage_writer=dcp.FileSystemWriter(folder),
            async_stager=self._stager,
            process_group=self._group,
            no_dist=not self._ranks.several,
        )
        return future

    def load(self, folder: Path, *, weights_only: bool = False) -> None:
        """Load ``folder`` into the objects, in place; ``weights_only`` the modules alone.

        All ranks call it. Raises :class:`CheckpointError` where it does not fit the objects.
        """
        import torch
        import torch.distributed.checkpoint as dcp
        from torch.distributed.checkpoint.api import CheckpointException

        state = self._state(weights_only=weights_only)
        try:
            dcp.load(
                state,
                storage_reader=dcp.FileSystemReader(folder),
                process_group=self._group,
                no_dist=not self._ranks.several,
            )
            self._put_back(state)
            for name, thing in {} if weights_only else self._others.items():
                path = folder / f"state-{name}.pt"
                thing.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
        except (CheckpointException, Exception) as error:  # the former is no subclass of the latter
            raise CheckpointError(
                f"checkpoint {folder} does not fit {', '.join(self._names)}: {error}"
            ) from error

    def close(self) -> None:
        """Free the staging buffers."""
        if self._stager is not None:
            self._stager.close()
            self._stager = None

    @property
    def _group(self) -> Any:
        return self._ranks.uploads if self._ranks.several else None

    @property
    def _names(self) -> list[str]:
        return [*self._modules, *self._optimizers, *self._others]

    def _owner(self, name: str, optimizer: Any) -> Any:
        """Return the module whose parameters the optimizer steps."""
        wanted = {id(p) for group in optimizer.param_groups for p in group["params"]}
        for module in self._modules.values():
            if wanted <= {id(p) for p in module.parameters()}:
                return module
        raise ConfigurationError(name, "pass the module whose parameters it steps, too")

    def _state(self, *, weights_only: bool = False) -> dict[str, Any]:
        from torch.distributed.checkpoint.state_dict import (
            get_model_state_dict,
            get_optimizer_state_dict,
        )

        state = {name: get_model_state_dict(m) for name, m in self._modules.items()}
        if not weights_only:
            for name, (module, optimizer) in self._optimizers.items():
                # Materialises the optimizer's state where it has none yet.
                state[name] = get_optimizer_state_dict(module, optimizer)
        return state

    def _put_back(self, state: dict[str, Any]) -> None:
        from torch.distributed.checkpoint.state_dict import (
            set_model_state_dict,
            set_optimizer_state_dict,
        )

        for name, module in self._modules.items():
            set_model_state_dict(module, state[name])
        for name, (module, optimizer) in self._optimizers.items():
            if name in state:
                set_optimizer_state_dict(module, optimizer, state[name])
