"""Entry point: ``python -m vioc.cli`` runs the command ``vioc``."""

from vioc.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
