"""One file per question; `python -m benchmarks` lists them."""
