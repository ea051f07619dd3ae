"""Problems and closed forms that several tests share.

Tests of behaviour import no studies, which are a distribution of their own: what both need is in vioc, and what
is small is here. Tests whose subject is a study or a benchmark import it: `test_collection.py` says which.
"""
