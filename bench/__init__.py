"""Measurements of the product: `python -m bench.vm` and `python -m bench.apiserver`."""
