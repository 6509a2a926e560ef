"""A small DLRM-style ranker on MovieLens-100k: the demo's training."""
