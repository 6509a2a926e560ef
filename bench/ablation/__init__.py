"""The parts of ``bench/ett``: levers pulled one after the other, under the product's own metric."""
