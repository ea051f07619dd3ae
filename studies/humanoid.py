"""A humanoid from a URDF on the linear-time integrator: 30 joints on a floating base, 1 ms steps.

[L] names humanoids as what the method is for. The robot is written here as URDF text, measures and masses
of a person of 1.7 m in round numbers; it falls freely with limp, damped joints and must keep its momenta.
"""

from __future__ import annotations

import time

import numpy as np

import vioc
from studies.harness import Claim, Report, Study, at_least, at_most
from vioc import LinearTimeVI
from vioc.compile import find_compiler

DT = 1e-3  # s
DAMPING = 0.2  # N m s/rad
DURATION = 0.5  # s
# segment: (parent, place of its first joint, axes of its joints, length down, mass)
SEGMENTS = {
    "waist": ("pelvis", (0, 0, 0.1), "zyx", -0.2, 12.0),
    "chest": ("waist", (0, 0, 0.2), "zyx", -0.25, 16.0),
    "head": ("chest", (0, 0, 0.3), "zyx", -0.2, 5.0),
}
for _side, _y in (("left", 1.0), ("right", -1.0)):
    SEGMENTS |= {
        f"{_side}_arm": ("chest", (0, 0.2 * _y, 0.22), "zyx", 0.3, 2.0),
        f"{_side}_forearm": (f"{_side}_arm", (0, 0, -0.3), "y", 0.25, 1.2),
        f"{_side}_thigh": ("pelvis", (0, 0.1 * _y, -0.1), "zxy", 0.42, 8.0),
        f"{_side}_shank": (f"{_side}_thigh", (0, 0, -0.42), "y", 0.4, 3.5),
        f"{_side}_foot": (f"{_side}_shank", (0, 0, -0.4), "yx", 0.1, 1.0),
    }
SEGMENTS["left_hand"] = ("left_forearm", (0, 0, -0.25), "x", 0.15, 0.5)

STUDY = Study(
    __file__,
    "a humanoid of 36 degrees of freedom from a URDF",
    freedom=Claim("degrees of freedom", at_least(30)),
    real_time=Claim("real-time factor at 1 ms: simulated over processor time"),
    virtual=Claim("the same without a compiler"),
    faster=Claim("processor time without a compiler over that with one, same run", at_least(3)),
    agree=Claim("largest difference of the two", at_most(1e-8), unit="rad, m, kg m/s, kg m^2/s"),
    momentum=Claim("change of p of the base's x and y over the fall", at_most(1e-10), unit="kg m/s"),
    fall=Claim("p of the base's z against -m g t", at_most(1e-9), unit="kg m/s"),
    midpoint=Claim("distance to the midpoint rule's configurations", at_most(1e-3), unit="rad, m"),
)


def urdf() -> str:
    """The robot's URDF text: each joint of a segment is revolute, massless links between them."""
    text = ['<robot name="humanoid">', _link("pelvis", 10.0, -0.2)]
    for name, (parent, place, axes, length, mass) in SEGMENTS.items():
        above = parent
        for i, axis in enumerate(axes):
            last = i == len(axes) - 1
            below = name if last else f"{name}_{axis}"
            text.append(_link(below, mass if last else 0.0, length))
            origin = " ".join(map(str, place if i == 0 else (0, 0, 0)))
            unit = {"x": "1 0 0", "y": "0 1 0", "z": "0 0 1"}[axis]
            text.append(
                f'<joint name="{name}_r{axis}" type="continuous"><parent link="{above}"/>'
                f'<child link="{below}"/><origin xyz="{origin}"/><axis xyz="{unit}"/>'
                f'<dynamics damping="{DAMPING}"/></joint>'
            )
            above = below
    return "\n".join([*text, "</robot>"])


def _link(name: str, mass: float, length: float) -> str:
    """A box of 0.12 m width below (or above, length < 0) its joint."""
    if mass == 0.0:
        return f'<link name="{name}"/>'
    across, along = mass / 12 * (0.12**2 + length**2), mass / 6 * 0.12**2
    return (
        f'<link name="{name}"><inertial><origin xyz="0 0 {-length / 2}"/><mass value="{mass}"/>'
        f'<inertia ixx="{across}" iyy="{across}" izz="{along}" ixy="0" ixz="0" iyz="0"/></inertial></link>'
    )


@STUDY.body
def run(report: Report) -> None:
    system = vioc.read_urdf_text(urdf(), base="floating").system
    steps = round((0.1 if report.quick else DURATION) / DT)
    random = np.random.default_rng(0)
    n = len(system.variables)
    q, v = 0.3 * random.normal(size=n), np.concatenate([np.zeros(6), random.normal(size=n - 6)])
    runs, seconds = {}, {}
    for backend in ("virtual", "compiled") if find_compiler() else ("virtual",):
        f = LinearTimeVI(system, DT, backend=backend)
        x0 = f.initial_state(q, v)
        f.rollout(x0, steps=steps)  # builds
        before = time.process_time()
        runs[backend] = f.rollout(x0, steps=steps)
        seconds[backend] = time.process_time() - before
    x, t = runs["virtual"].x, runs["virtual"].t
    base = list(system.variables).index("pelvis_x")
    p = x[:, n + base : n + base + 3]
    mass = sum(float(node.frame.mass.mass) for node in system.nodes if node.frame.mass)
    m = vioc.MidpointVI(system, DT)
    other = m.rollout(m.initial_state(q, v), steps=steps)
    report.measure(
        freedom=n,
        virtual=steps * DT / seconds["virtual"],
        momentum=np.abs(p[:, :2] - p[0, :2]).max(),
        fall=np.abs(p[:, 2] - p[0, 2] + mass * 9.81 * t).max(),
        midpoint=np.abs(x[:, :n] - other.x[:, :n]).max(),
    )
    if "compiled" in runs:
        report.measure(
            real_time=steps * DT / seconds["compiled"],
            faster=seconds["virtual"] / seconds["compiled"],
            agree=np.abs(x - runs["compiled"].x).max(),
        )
    report.frame(runs["virtual"], [0.0, t[-1]], view="3d", suffix="", title="humanoid in free fall")


if __name__ == "__main__":
    STUDY.main()
