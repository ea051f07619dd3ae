"""Conversion to and from python-control, Crocoddyl, Drake, ROS 2 and plain CasADi (docs/coming_from).

`python_control`, `crocoddyl` and `drake` need those packages; import them by name.
"""

from vioc.interop.export import (
    Exported,
    load_functions,
    save_functions,
    step_functions,
)
from vioc.interop.ros import joint_trajectory, save_joint_trajectory

__all__ = [
    "Exported",
    "joint_trajectory",
    "load_functions",
    "save_functions",
    "save_joint_trajectory",
    "step_functions",
]
