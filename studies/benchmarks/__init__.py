"""Times of vioc, one table per run: ``python -m studies.benchmarks``. They decide no test.

One core: BLAS is kept to one thread, which must be said before numpy is imported.
"""

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")
