"""The run's and the task instance's tab: one job from its first second to its last."""
