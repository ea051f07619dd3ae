"""Times of vioc, one table per run: ``python -m benchmarks``. They decide no test."""
