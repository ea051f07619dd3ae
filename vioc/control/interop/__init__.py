"""To and from other packages: python-control, Crocoddyl, plain CasADi and C. See docs/neighbours.md.

`python_control` and `crocoddyl` need those packages; import them by name.
"""

from vioc.control.interop.export import (
    Exported,
    compile_c,
    export_c,
    load_functions,
    save_functions,
    step_functions,
)

__all__ = ["Exported", "compile_c", "export_c", "load_functions", "save_functions", "step_functions"]
