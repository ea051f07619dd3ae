"""Problems and closed forms that several tests share.

Tests of behaviour import no studies, which are a distribution of their own: what both need is in vioc, and
is small is here. Tests whose subject is a study or a benchmark import it: see `test_collection.py`.
"""
