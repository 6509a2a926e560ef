"""What the log holds: each event once, sorted to its attempt and rank, without conclusions."""
