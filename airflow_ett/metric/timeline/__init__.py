"""Each attempt's time, partitioned into spans as its evidence comes in."""
