"""What a scheduler of ours knows of an app, in the form in which TorchX shows it."""

from __future__ import annotations

from torchx.schedulers.api import DescribeAppResponse
from torchx.specs import AppState, ReplicaStatus, Role, RoleStatus

from airflow_ett.launch.status import SchedulerStatus


def described(app_id: str, detail: SchedulerStatus, logs: str) -> DescribeAppResponse:
    """Return what TorchX shows of an app; ``logs`` is the address of its output."""
    roles = dict.fromkeys(replica.role for replica in detail.replicas)
    groups = {role: [r for r in detail.replicas if r.role == role] for role in roles}
    return DescribeAppResponse(
        app_id=app_id,
        state=AppState[detail.state or "UNKNOWN"],
        num_restarts=detail.restart,
        msg=detail.message,
        ui_url=logs,
        roles=[Role(name=r, image="", num_replicas=len(g)) for r, g in groups.items()],
        roles_statuses=[
            RoleStatus(
                role,
                [
                    ReplicaStatus(r.id, AppState[r.state or "UNKNOWN"], role, r.host or "")
                    for r in group
                ],
            )
            for role, group in groups.items()
        ],
    )
