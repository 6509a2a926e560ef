"""From an operator's parameters to a job on a TorchX scheduler, and back to its verdict."""
