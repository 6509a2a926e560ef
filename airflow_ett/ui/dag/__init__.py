"""The Dag tab: how a Dag's trainings went, and what to fix next."""
