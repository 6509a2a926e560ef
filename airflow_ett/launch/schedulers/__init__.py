"""TorchX schedulers of our own, and the standard-library processes behind them."""
