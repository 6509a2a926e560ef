"""A job's timeline to scale: attempts, phases, checkpoints, failures, the cursor."""
