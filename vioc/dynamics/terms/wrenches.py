"""Forces and moments (wrenches) on frames, either constant or driven by inputs.

The generalized forces follow by the Jacobians of [T] IV-E1. A wrench is a force (N) and a moment (N m). Its
`axes` are the axes and the reference point of both:

==========  ======================  ==================  ==============================================
axes        components in           moment about        generalized force
==========  ======================  ==================  ==============================================
body        the frame's axes        the frame's origin  (J^b)' (f, m)
hybrid      the world's axes        the frame's origin  (J^b)' (R'f, R'm)
spatial     the world's axes        the world's origin  (J^s)' (f, m) = (J^b)' (R'f, R'(m - p x f))
==========  ======================  ==================  ==============================================

where R, p is the frame's pose and J^b its body Jacobian, with the linear rows first.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, ClassVar

import casadi as ca

from vioc.dynamics.description.component import choice, frame, input_name, vector
from vioc.dynamics.description.numbers import Number, Parameter
from vioc.dynamics.terms.forces import RateForce
from vioc.errors import ModelError

AXES = ("body", "hybrid", "spatial")
Vector3 = tuple[Number, Number, Number]
_ZERO: Any = (0.0, 0.0, 0.0)


def _given(vector: tuple[Number, ...]) -> bool:
    return any(isinstance(v, Parameter) or v != 0 for v in vector)


class _WrenchForce(RateForce):
    """Base class of constant and input-driven wrenches on a frame.

    Subclasses have frame, force, moment and axes.
    """

    frame: str
    force: Vector3
    moment: Vector3
    axes: str

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.frame == "world":
            raise ModelError(f"{self.label()}: the world does not move; name a frame that the wrench acts on")
        if not (_given(self.force) or _given(self.moment)):
            raise ModelError(f"{self.label()}: expected a force or a moment, got zeros")

    def size(self, k: Any) -> Any:
        """Return the factor by which force and moment are multiplied: 1, or the input's symbol."""
        return 1.0

    def along_body(self, k: Any) -> ca.SX:
        """Return the wrench (6,) on the frame in the frame's axes: first the force, then the moment.
        The moment is about the frame's origin.

        J^b' is applied to it.
        """
        force, moment = (self.size(k) * ca.vertcat(*map(k.number, v)) for v in (self.force, self.moment))
        if self.axes != "body":
            transposed, p = k.pose(self.frame)[:3, :3].T, k.position(self.frame)
            if self.axes == "spatial":
                moment = moment - ca.cross(p, force)
            force, moment = ca.mtimes(transposed, force), ca.mtimes(transposed, moment)
        return ca.vertcat(force, moment)

    def by_rates(self, k: Any) -> ca.SX:
        return ca.jtimes(k.body_velocity(self.frame), k.v_vector, self.along_body(k), True)


@dataclass(frozen=True, repr=False)
class Wrench(_WrenchForce):
    """Constant force and moment on a frame, given in the body's axes or in the world's axes.

    Parameters
    ----------
    frame : str
    force, moment : 3 numbers
        N and N m; not both zero.
    axes : "body", "hybrid" or "spatial"
        See the module's text.
    """

    keyword: ClassVar[str] = "WRENCH"

    frame: str = frame()
    force: Vector3 = vector()
    moment: Vector3 = vector(_ZERO)
    axes: str = choice(*AXES)


@dataclass(frozen=True, repr=False)
class WrenchInput(_WrenchForce):
    """Input u that acts on a frame as the force and moment u (f, m), with constant f and m.

    Examples are a thruster and a propeller.

    Parameters
    ----------
    frame : str
    input : str
        Name of the input.
    force, moment : 3 numbers
        Wrench per unit of the input; not both zero. With a unit force the input is in N.
    axes : "body", "hybrid" or "spatial"
        See the module's text.
    """

    keyword: ClassVar[str] = "WRENCH-INPUT"

    frame: str = frame()
    input: str = input_name()
    force: Vector3 = vector()
    moment: Vector3 = vector(_ZERO)
    axes: str = choice(*AXES)

    def size(self, k: Any) -> Any:
        return k.u(self.input)

    def input_unit(self, rotational: Collection[str]) -> str:
        if not _given(self.moment):
            return "N"
        return "" if _given(self.force) else "N m"


_COMPONENTS = ("fx", "fy", "fz", "mx", "my", "mz")


def wrench_inputs(frame: str, axes: str = "body", **inputs: str) -> tuple[WrenchInput, ...]:
    """Return inputs, each of which is one component of the force or moment on a frame.

    Parameters
    ----------
    frame : str
    axes : "body", "hybrid" or "spatial"
    **inputs : str
        Names of inputs for any of fx, fy, fz, mx, my, mz, as in ``fx="thrust", mz="rudder"``. Without
        any, all six, called ``FRAME-fx`` and so on.

    Raises
    ------
    ModelError
        If a component is unknown.
    """
    unknown = sorted(set(inputs) - set(_COMPONENTS))
    if unknown:
        raise ModelError(f"wrench_inputs: unknown components {unknown}; known are {', '.join(_COMPONENTS)}")
    names = inputs or {c: f"{frame}-{c}" for c in _COMPONENTS}
    result = []
    for i, component in enumerate(_COMPONENTS):
        if component in names:
            unit = tuple(float(i == j) for j in range(6))
            result.append(WrenchInput(frame, names[component], unit[:3], unit[3:], axes))  # type: ignore[arg-type]
    return tuple(result)
