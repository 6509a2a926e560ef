"""The sums over all attempts, and from them the numbers."""
