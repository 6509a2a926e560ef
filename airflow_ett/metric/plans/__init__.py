"""What the numbers ask for: how often to save, what a saving buys, where a change came from."""
