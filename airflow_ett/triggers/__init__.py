"""Triggers: watching a training without holding a worker."""
