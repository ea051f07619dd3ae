"""Entry point of ``python -m vioc.cli``, which runs the command ``vioc``."""

from vioc.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
