"""The Unitree A1 on rigid ground, with PD control of its joints.

The description is that of the package ``example-robot-data``: 13 bodies, 12 joints with a motor each. The
trunk is free; the feet are spheres. Springs and dampers of the joints are the feedback of a PD controller,
and its references enter as the inputs k q + d dq/dt, so that the closed loop is one mechanism.
"""

from __future__ import annotations

import importlib.metadata
from functools import cached_property
from pathlib import Path

import casadi as ca
import numpy as np

from vioc import Contact, JointDamping, MaximalVI, System, TorsionalSpring, read_urdf
from vioc.compile.evaluate import Evaluator

PACKAGE, FILE = "example-robot-data", "a1.urdf"
LEGS = ("FR", "FL", "RR", "RL")
JOINTS = tuple(f"{leg}_{joint}_joint" for leg in LEGS for joint in ("hip", "thigh", "calf"))
GAIN, RATE_GAIN = 80.0, 1.0  # N m/rad, N m s/rad
FRICTION = 0.8
CONE = "linear"  # four directions, as in [M] Fig. 1 b


def description() -> Path | None:
    """The robot's URDF file, or None where the package is not installed."""
    try:
        package = importlib.metadata.distribution(PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        return None
    return next((Path(str(package.locate_file(p))) for p in package.files or () if p.name == FILE), None)


class Quadruped:
    """The robot as a map whose inputs are torques, of references on top of its springs and dampers.

    Parameters
    ----------
    path : Path
    dt : float
        s.

    Attributes
    ----------
    f : MaximalVI
    limits : dict of Limit
        Of the joints, from the file.
    """

    def __init__(self, path: Path, dt: float):
        robot = read_urdf(path, base="floating", inputs=JOINTS)
        self.path, self.limits = path, {j: robot.limits[j] for j in JOINTS}
        self._radii = {s.frame: s.size[0] for s in robot.collisions if s.kind == "sphere"}
        servos = [part for j in JOINTS for part in (TorsionalSpring(j, GAIN), JointDamping(j, RATE_GAIN))]
        self._legs: System = robot.system.with_components(*servos)
        self.system = self.on_feet(CONE)
        self.f = MaximalVI(self.system, dt, backend="compiled")

    def on_feet(self, cone: str) -> System:
        """The robot with its servos on feet whose friction has that cone."""
        return self._legs.with_components(
            *(
                Contact.sphere(f, self._radii[f], friction=FRICTION, cone=cone, name=leg)
                for leg, f in ((leg, f"{leg}_foot") for leg in LEGS)
            )
        )

    @property
    def weight(self) -> float:
        """N."""
        return self.f.mass * 9.81

    def inputs(self, angles: np.ndarray, rates: np.ndarray) -> np.ndarray:
        """Of references of the joints (N, 12), in the order of `JOINTS`."""
        return GAIN * angles + RATE_GAIN * rates

    def standing(self, angles: np.ndarray) -> dict[str, float]:
        """Minimal coordinates with a level trunk whose lowest foot just touches the ground."""
        at = dict(zip(JOINTS, map(float, angles), strict=True)) | {"base_z": 1.0}
        lowest = self.gaps(self.f.initial_state(at)).min()
        return at | {"base_z": 1.0 - float(lowest) + 1e-12}

    @cached_property
    def _functions(self) -> dict[str, Evaluator]:
        f, s = self.f, self.f.symbols
        groups = {
            "gaps": [f"gap.{leg}" for leg in LEGS],
            "joints": JOINTS,
            "violations": [f"h.{n}" for n in f.graph.names],
            "points": [
                f"{leg}_{part}:{a}"
                for leg in LEGS
                for part in ("hip", "thigh", "calf", "foot")
                for a in "xyz"
            ],
        }
        return {
            name: Evaluator(
                ca.Function(name, [s.x, s.parameters], [ca.densify(ca.vertcat(*map(f.quantity, group)))])
            )
            for name, group in groups.items()
        }

    def _at(self, name: str, x: np.ndarray) -> np.ndarray:
        return self._functions[name](np.atleast_2d(x), np.zeros(0))[0][..., 0]

    def gaps(self, x: np.ndarray) -> np.ndarray:
        """Of the feet (N, 4) in states (N, nx), m."""
        return self._at("gaps", x)

    def joints(self, x: np.ndarray) -> np.ndarray:
        """Angles (N, 12), rad."""
        return self._at("joints", x)

    def violations(self, x: np.ndarray) -> np.ndarray:
        """Of the joints' constraints (N, rows)."""
        return self._at("violations", x)

    def points(self, x: np.ndarray) -> np.ndarray:
        """Origins of hip, thigh, calf and foot of each leg (N, 4 legs, 4, 3), m."""
        return self._at("points", x).reshape(-1, len(LEGS), 4, 3)

    def knees(self, x: np.ndarray) -> np.ndarray:
        """Heights (N, 4 legs), m."""
        return self.points(x)[:, :, 2, 2]

    def trunk(self, x: np.ndarray) -> np.ndarray:
        """Centre of mass of the trunk (N, 3), m."""
        at = self.f.state_names.index("x.trunk")
        return np.atleast_2d(x)[:, at : at + 3]

    def upright(self, x: np.ndarray) -> np.ndarray:
        """Cosine of the trunk's tilt (N,)."""
        at = self.f.state_names.index("qx.trunk")
        return 1 - 2 * np.sum(np.atleast_2d(x)[:, at : at + 2] ** 2, axis=1)

    def servos(self, x: np.ndarray, u: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Angles, rates and torques of the joints at the start of each step but the first (N - 1, 12).

        A rate is the mean of the steps before and after.

        Parameters
        ----------
        x : (N + 1, nx)
        u : (N, 12)
        """
        q = self.joints(x)
        rates = (q[2:] - q[:-2]) / (2 * self.f.dt)
        return q[1:-1], rates, u[1:] - GAIN * q[1:-1] - RATE_GAIN * rates

    def able(self, x: np.ndarray, u: np.ndarray) -> bool:
        """Whether angles, rates and torques, as of `servos`, are within the limits in the robot's file."""
        angles, rates, torques = self.servos(x, u)
        lower, upper, fastest, strongest = np.array([self.limits[j] for j in JOINTS]).T
        return bool(
            np.all((angles >= lower) & (angles <= upper))
            and np.all(np.abs(rates) <= fastest)
            and np.all(np.abs(torques) <= strongest)
        )
