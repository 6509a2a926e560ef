"""Trainings to learn from and to try the product with."""
