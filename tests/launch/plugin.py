"""A TorchX scheduler as somebody else's package brings it: an entry point, and TorchX's interface.

:func:`install` puts the package into a folder for ``sys.path``.
"""

from __future__ import annotations

from pathlib import Path

_ENTRY_POINTS = """[torchx.schedulers]
acme = acme_torchx:create_scheduler
"""

_METADATA = """Metadata-Version: 2.1
Name: acme-torchx
Version: 1.0
"""

_MODULE = '''
import os
from pathlib import Path

from torchx.schedulers.api import DescribeAppResponse, ListAppResponse, Scheduler
from torchx.specs import (
    AppDryRunInfo, AppState, ReplicaStatus, Role, RoleStatus, runopts
)


class Acme(Scheduler):
    """Its apps are numbered; the file "state" of a folder says how the newest one is."""

    def __init__(self, session_name, folder):
        super().__init__("acme", session_name)
        self._folder = folder

    def _run_opts(self):
        options = runopts()
        options.add("pool", type_=str, help="where to run", default="small")
        return options

    def _submit_dryrun(self, app, cfg):
        return AppDryRunInfo((app, cfg), repr)

    def schedule(self, dryrun_info):
        app, cfg = dryrun_info.request
        app_id = f"job-{len(self.list()) + 17}"
        (self._folder / app_id).write_text(app.name)
        (self._folder / "pool").write_text(cfg["pool"])
        return app_id

    def describe(self, app_id):
        if not (self._folder / app_id).exists():
            return None
        state = AppState[(self._folder / "state").read_text()]
        return DescribeAppResponse(
            app_id=app_id,
            state=state,
            roles=[Role("trainer", image="", num_replicas=1)],
            roles_statuses=[RoleStatus("trainer", [ReplicaStatus(0, state, "trainer", "")])],
        )

    def list(self, cfg=None):
        return [
            ListAppResponse(app_id=path.name, state=AppState.UNKNOWN, name=path.read_text())
            for path in self._folder.glob("job-*")
        ]

    def log_iter(self, app_id, role_name, k=0, *args, **kwargs):
        return iter((self._folder / "log").read_text().splitlines(keepends=True))

    def _cancel_existing(self, app_id):
        (self._folder / "state").write_text("CANCELLED")


def create_scheduler(session_name, **kwargs):
    return Acme(session_name, Path(os.environ["ACME_FOLDER"]))
'''


def install(site: Path) -> None:
    """Put the package there, as an installer would."""
    info = site / "acme_torchx-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "entry_points.txt").write_text(_ENTRY_POINTS)
    (info / "METADATA").write_text(_METADATA)
    (site / "acme_torchx.py").write_text(_MODULE)
