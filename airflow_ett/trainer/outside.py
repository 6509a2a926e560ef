"""What a Session gives outside a launched job."""

from __future__ import annotations


class NoCheckpointer:
    """The checkpointer outside a launched job."""

    def restore(self) -> int:
        """Return 0: there is nothing to resume from."""
        return 0
