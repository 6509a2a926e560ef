"""Torch's side of a checkpoint: what is saved of which object, and how it gets back into it.

Modules and optimizers go through torch's distributed checkpoint under their plain parameter names
(compiled, wrapped or sharded as they may be), so that another world size can read them. The state
of every other object, and the random numbers, each rank keeps for itself: also that of an optimizer
which cannot step without a closure, such as LBFGS, for torch's has to step one to load its state.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from airflow_ett.checkpoints import Checkpoint, FileDigest
from airflow_ett.checkpoints.layout import Folder
from airflow_ett.errors import CheckpointError, ConfigurationError
from airflow_ett.trainer.ownstate import OwnState
from airflow_ett.trainer.ranks import Ranks
from airflow_ett.trainer.saveerrors import is_failure, reason

if TYPE_CHECKING:
    from airflow_ett.trainer.staging import Copy

_Part = TypeVar("_Part")


class Taken(NamedTuple):
    """A state: what writes it, and what of it is still to be copied, if anything is."""

    write: Callable[[], Mapping[str, FileDigest]]
    copying: Copy | None


class Shards:
    """Named objects with ``state_dict`` and ``load_state_dict``, and how they are saved and loaded.

    ``before_step`` is called ahead of each step of one of the optimizers. Raises
    :class:`ConfigurationError` that names an object which cannot be saved.
    """

    def __init__(
        self, ranks: Ranks, objects: Mapping[str, Any], before_step: Callable[[], None]
    ) -> None:
        import torch

        from airflow_ett.trainer.staging import Stager

        # It says so on every save and load of a single process, where that is meant.
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        self._ranks = ranks
        self._modules: dict[str, Any] = {}
        self._optimizers: dict[str, tuple[Any, Any]] = {}
        others: dict[str, Any] = {}
        kinds = torch.nn.Module, torch.optim.Optimizer
        for name, thing in objects.items():
            if not (hasattr(thing, "state_dict") and hasattr(thing, "load_state_dict")):
                problem = f"{type(thing).__name__} has no state_dict and load_state_dict"
                raise ConfigurationError(name, problem)
            if isinstance(thing, kinds[0]):
                self._modules[name] = thing
            elif not isinstance(thing, kinds[1]) or _needs_closure(thing):
                others[name] = thing
        for name, thing in objects.items():
            if isinstance(thing, kinds[1]) and name not in others:
                self._optimizers[name] = (self._owner(name, thing), thing)
        optimizers = {name: optimizer for name, (_, optimizer) in self._optimizers.items()}
        self._stager = Stager(self._modules, optimizers, before_step)
        self.own = OwnState(ranks, others)
        self._names = ", ".join([*self._modules, *self._optimizers, *others])

    def take(
        self,
        folder: Folder,
        *,
        copy: bool,
        beside: bool = False,
        more: Mapping[str, bytes] | None = None,
    ) -> Taken:
        """Take the present state, to be written into the new ``folder`` with ``more`` files.

        All ranks call it, and then the ``write`` of what it returns: that may be done on another
        thread, and tells the first rank what all of them have written and synced. With ``copy`` the
        state may change once this method returns; with ``beside``, too, once ``copying`` is over as
        far as only a step of an optimizer changes it.

        Raises :class:`CheckpointError` on every rank where any has failed.
        """

        def mine() -> tuple[dict[str, Any], Copy | None, dict[str, bytes]]:
            folder.mkdir(parents=True, exist_ok=True)
            own = self.own.encode()
            state = self._state()
            if not copy:
                return state, None, own
            return *self._stager.stage(state, beside=beside), own

        state, copying, own = self._agreed(mine)
        files = {**self.own.mine(own), **(more or {})}
        return Taken(partial(self._write, folder, state, copying, files), copying)

    def load(self, checkpoint: Checkpoint, *, weights_only: bool = False) -> None:
        """Load a checkpoint into the objects, in place; ``weights_only`` the modules alone.

        All ranks call it. Raises :class:`CheckpointError` on all of them where it does not fit the
        objects of any.
        """
        try:
            state = self._agreed(lambda: self._state(weights_only=weights_only))
            self._stager.forget_steps()
            self._read(checkpoint.path, state)
            self._agreed(lambda: self._put_back(state))
            if not weights_only:
                self._agreed(lambda: self.own.put_back(checkpoint))
        except BaseException as error:  # torch's CheckpointException is no Exception
            if not is_failure(error):
                raise
            problem = str(error) if isinstance(error, CheckpointError) else reason(error)
            raise CheckpointError(
                f"checkpoint {checkpoint.path} does not fit {self._names}: {problem}"
            ) from error

    def close(self) -> None:
        """Free the staging buffers."""
        self._stager.close()

    @property
    def _group(self) -> Any:
        return self._ranks.uploads if self._ranks.several else None

    def _agreed(self, work: Callable[[], _Part]) -> _Part:
        """Do this rank's part; raise :class:`CheckpointError` on all ranks if it fails on any.

        Else the others would wait for the one that failed in the next collective.
        """
        problem: BaseException | None = None
        done: Any = None
        try:
            done = work()
        except BaseException as error:
            if not is_failure(error):
                raise
            problem = error
        failed = self._ranks.concur(reason(problem) if problem else None)
        if failed is not None:
            raise CheckpointError(failed) from problem
        part: _Part = done
        return part

    def _read(self, folder: Folder, state: dict[str, Any]) -> None:
        import torch.distributed.checkpoint as dcp

        from airflow_ett.trainer.files import make_reader

        dcp.load(
            state,
            storage_reader=make_reader(folder),
            process_group=self._group,
        )

    def _write(
        self, folder: Folder, state: Any, copying: Copy | None, own: Mapping[str, bytes]
    ) -> Mapping[str, FileDigest]:
        import torch.distributed.checkpoint as dcp

        from airflow_ett.trainer.files import Writer

        if copying is not None:
            copying.run()
        writer = Writer(folder, own, partial(self._check, copying))
        dcp.save(
            state,
            storage_writer=writer,
            process_group=self._group,
        )
        written: dict[str, FileDigest] = {}
        for files in self._ranks.gather(writer.written):
            written |= files
        return written

    def _check(self, copying: Copy | None) -> None:
        """Raise what was wrong with a copy; where the state has changed, all is copied at once."""
        if copying is None:
            return
        copying.settle()  # writing takes longer than a change that was under way at its end
        if copying.problem is not None:
            self._stager.apart = False
            raise copying.problem

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


def _needs_closure(optimizer: Any) -> bool:
    closure = inspect.signature(optimizer.step).parameters.get("closure")
    return closure is not None and closure.default is inspect.Parameter.empty
