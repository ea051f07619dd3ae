"""``python -m studies list``, ``run``, ``page`` are ``vioc study list``, ``run``, ``page``."""

import sys

from vioc.cli import main

if __name__ == "__main__":
    sys.exit(main(["study", *(sys.argv[1:] or ["list"])]))
