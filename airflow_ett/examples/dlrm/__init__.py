"""A sharded recommendation model in whose trainer every lever is one argument."""
