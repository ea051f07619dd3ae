"""To and from other packages: python-control, Crocoddyl, and plain CasADi. See docs/neighbours.md.

`python_control` and `crocoddyl` need those packages; import them by name.
"""

from vioc.control.interop.export import (
    Exported,
    load_functions,
    save_functions,
    step_functions,
)

__all__ = ["Exported", "load_functions", "save_functions", "step_functions"]
