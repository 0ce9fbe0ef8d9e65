"""Measures what the product's figures claim; `python -m benchmarks [ONLY]` asks all questions or one of them."""
