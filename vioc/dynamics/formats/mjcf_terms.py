"""Forces, constraints and actuators of a compiled MuJoCo model as components."""

from __future__ import annotations

from typing import Any

import numpy as np

from vioc.dynamics.formats.mjcf_model import BALL, FREE, MjcfModel
from vioc.dynamics.formats.robot import cleaned
from vioc.dynamics.terms.constraints import PointConstraint, StringConstraint, coincident
from vioc.dynamics.terms.drives import RotorInertia, TendonForce
from vioc.dynamics.terms.forces import JointDamping, JointForce, LinearDamper
from vioc.dynamics.terms.pairs import GearConstraint
from vioc.dynamics.terms.potentials import Gravity, LinearSpring, MassGravity, TorsionalSpring
from vioc.dynamics.terms.wrenches import WrenchInput

Y, Z = (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)


def terms(
    model: MjcfModel, gravity: Any, actuators: bool
) -> tuple[list[Any], dict[str, tuple[float, float]]]:
    """Return the components of a MuJoCo model, and the range of each input by name."""
    components: list[Any] = [] if gravity is None else [Gravity(*gravity)]
    components += _relieved(model, gravity) + _joint_terms(model) + _equalities(model) + _tendons(model)
    driven, controls = _actuators(model) if actuators else ([], {})
    return components + driven, controls


def _relieved(model: MjcfModel, gravity: Any) -> list[Any]:
    """Return components that compensate gravity on the bodies with the MJCF attribute ``gravcomp``.

    The forces act against gravity at the bodies' centres of mass. MuJoCo ignores ``gravcomp`` if springs and
    dampers are both disabled, or if no body has a positive value.
    """
    m = model.compiled
    passed_over = model.disabled("SPRING") and model.disabled("DAMPER")
    if gravity is None or passed_over or not (m.body_gravcomp > 0).any():
        return []
    for j in range(m.njnt):
        if m.jnt_actgravcomp[j] and (
            m.jnt_actfrclimited[j] or model.disabled("ACTUATION") or not model.actuators
        ):
            model.leave("actuatorgravcomp that is limited or has no actuators", f"joint {model.joints[j]!r}")
    shares = [(b, float(m.body_gravcomp[b])) for b in range(1, m.nbody)]
    return [
        MassGravity(model.bodies[b], *(-share * float(g) for g in gravity))
        for b, share in shares
        if share and m.body_mass[b] > 0
    ]


def _coefficient(model: MjcfModel, field: str, index: Any, where: str) -> float:
    """Return a stiffness or damping of a joint, tendon or actuator, or 0 if the model disables it.

    Polynomial coefficients are reported.
    """
    what = field.split("_")[1]
    if model.disabled({"stiffness": "SPRING", "damping": "DAMPER"}[what]):
        return 0.0
    if model.given(f"{field}poly", index):
        model.leave(f"polynomial {what}", where)
    return float(np.max(getattr(model.compiled, field)[index])) if model.given(field, index) else 0.0


def _joint_terms(model: MjcfModel) -> list[Any]:
    m = model.compiled
    components: list[Any] = []
    for j in range(m.njnt):
        variable, where = model.single(j), f"joint {model.joints[j]!r}"
        dofs = slice(
            int(m.jnt_dofadr[j]), int(m.jnt_dofadr[j]) + {FREE: 6, BALL: 3}.get(int(m.jnt_type[j]), 1)
        )
        stiffness = _coefficient(model, "jnt_stiffness", j, where)
        damping = _coefficient(model, "dof_damping", dofs, where)
        armature = float(m.dof_armature[dofs].max())
        if m.dof_frictionloss[dofs].any() and not model.disabled("FRICTIONLOSS"):
            model.leave("frictionloss", where)
        if stiffness and model.given("jnt_springyield", j):
            model.leave("springyield", where)
        if variable is None:
            limited = bool(m.jnt_limited[j]) and not model.disabled("LIMIT")
            for what, value in (
                ("stiffness", stiffness),
                ("damping", damping),
                ("armature", armature),
                ("range", limited),
            ):
                if value:
                    model.leave(f"{what} of a ball or free joint", where)
            continue
        if stiffness:
            rest = float(m.qpos_spring[m.jnt_qposadr[j]])
            components.append(TorsionalSpring(variable, stiffness, rest))
        if damping:
            components.append(JointDamping(variable, damping))
        if armature:
            components.append(RotorInertia(variable, armature))
    return components


def _equalities(model: MjcfModel) -> list[Any]:
    m, E = model.compiled, model.mujoco.mjtEq
    components: list[Any] = []
    for e in range(m.neq):
        kind, name = int(m.eq_type[e]), model.equality(e)
        word = E(kind).name.removeprefix("mjEQ_").lower()
        where = f"equality {name!r}"
        if not m.eq_active0[e] or model.disabled("EQUALITY"):
            model.leave(f"an inactive {word}", where)
        elif kind == E.mjEQ_CONNECT:
            components += _connect(*model.closures[e], name)
        elif kind == E.mjEQ_WELD:
            join = _weld if model.turns_with(e) else _connect
            components += join(*model.closures[e], name)
        elif kind == E.mjEQ_JOINT and _geared(model, e):
            components.append(_geared(model, e))
        else:
            model.leave(
                f"<{word}>" + " of other than two joints in proportion" * (kind == E.mjEQ_JOINT), where
            )
    return components


def _connect(first: str, second: str, name: str) -> list[Any]:
    """Return three constraints that make the origins of two frames coincide.
    Each constraint acts along one axis of the first frame.

    In these axes the equations that a planar loop implies stay the same as it turns.
    """
    return list(coincident(first, second, direction_in=first, name=name))


def _weld(first: str, second: str, name: str) -> list[Any]:
    """Return the six constraints of a weld, which makes two frames coincide in position and orientation.

    The ends of both x axes agree along y and z, those of both y axes along z, in the first frame's axes.
    """
    arms = (("x", Y, "yaw"), ("x", Z, "pitch"), ("y", Z, "roll"))
    return [
        *_connect(first, second, name),
        *(
            PointConstraint(f"{first}{arm}", f"{second}{arm}", n, first, name=f"{name}-{turn}")
            for arm, n, turn in arms
        ),
    ]


def _geared(model: MjcfModel, e: int) -> GearConstraint | None:
    """Return the gear constraint between two joints, or None if their relation is not linear.

    q1 - q1_0 = c0 + c1 (q2 - q2_0).
    """
    m = model.compiled
    first, second = int(m.eq_obj1id[e]), int(m.eq_obj2id[e])
    c = m.eq_data[e, :5]
    pair = [model.single(j) for j in (first, second) if j >= 0]
    if len(pair) < 2 or None in pair or c[2:].any() or not c[1]:
        return None
    q1, q2 = (float(m.qpos0[m.jnt_qposadr[j]]) for j in (first, second))
    return GearConstraint(
        str(pair[0]), str(pair[1]), float(c[1]), q1 + float(c[0]) - float(c[1]) * q2, name=model.equality(e)
    )


def _tendons(model: MjcfModel) -> list[Any]:
    """Return strings, springs and dampers that represent straight tendons between two sites."""
    m, wrap = model.compiled, model.mujoco.mjtWrap
    components: list[Any] = []
    clamped = set(model.clamped_tendons())
    for t in range(m.ntendon):
        name = cleaned(m.tendon(t).name or f"tendon{t + 1}")
        where = f"tendon {name!r}"
        wraps = slice(int(m.tendon_adr[t]), int(m.tendon_adr[t]) + int(m.tendon_num[t]))
        straight = m.wrap_type[wraps].tolist() == [wrap.mjWRAP_SITE] * 2
        first, second = (model.sites[i] for i in m.wrap_objid[wraps]) if straight else ("", "")
        low, high = map(float, m.tendon_range[t])
        stiffness = _coefficient(model, "tendon_stiffness", t, where)
        damping = _coefficient(model, "tendon_damping", t, where)
        rest = tuple(map(float, m.tendon_lengthspring[t]))
        if m.tendon_limited[t] and not model.disabled("LIMIT"):
            if straight and high > 0:
                components.append(StringConstraint(first, second, high, name=name))
                if low > 0:
                    model.leave("a least length", where)
            else:
                model.leave("limits", where)
        if stiffness:
            if straight and rest[0] == rest[1]:
                components.append(LinearSpring(first, second, stiffness, rest[0]))
            else:
                model.leave("stiffness", where)
        if damping:
            if straight:
                components.append(LinearDamper(first, second, damping))
            else:
                model.leave("damping", where)
        for what, field, counts in (
            ("frictionloss", "frictionloss", not model.disabled("FRICTIONLOSS")),
            ("armature", "armature", True),
            ("actuatorfrcrange that no bound of one input expresses", "actfrclimited", t in clamped),
            ("springyield", "springyield", bool(stiffness)),
        ):
            if counts and model.given(f"tendon_{field}", t):
                model.leave(what, where)
    return components


def _actuators(model: MjcfModel) -> tuple[list[Any], dict[str, tuple[float, float]]]:
    """Return the components that represent a MuJoCo model's actuators, and the range of each input.

    Servos have a spring and a damper as well. F = gear (gain u + b0 + b1 gear q + b2 gear dq).
    """
    m, mj = model.compiled, model.mujoco
    components: list[Any] = []
    controls: dict[str, tuple[float, float]] = {}
    for a in model.actuators:
        name = cleaned(m.actuator(a).name or f"actuator{a + 1}")
        j, where = model.driven_joint(a), f"actuator {name!r}"
        if model.given("actuator_armature", a):  # reported, as is damping, for disabled actuators as well
            model.leave("armature", where)
        if _coefficient(model, "actuator_damping", a, where):
            model.leave("damping", where)
        if not model.acts(a):
            continue
        variable = None if j is None else model.single(j)
        site = int(m.actuator_trntype[a]) == mj.mjtTrn.mjTRN_SITE and int(m.actuator_trnid[a, 1]) < 0
        affine, tendon = int(m.actuator_biastype[a]) == 1, model.tendon(a)
        driven = variable or ((site or tendon) and not affine)
        if not model.static(a) or int(m.actuator_biastype[a]) > 1 or not driven:
            model.leave("an actuator that is not a gain on a joint, a site or a fixed tendon", where)
            continue
        low, high = model.control_range(a)
        if low > high:
            model.leave("an actuator whose ranges of control and force do not overlap", where)
            continue
        gear, gain = np.array(model.gears(a)), float(m.actuator_gainprm[a, 0])
        if tendon:
            names, coefficients = tendon
            pull = gain * float(gear[0])
            components.append(TendonForce(tuple(names), tuple(pull * c for c in coefficients), name))
        elif variable is None:
            frame = model.sites[int(m.actuator_trnid[a, 0])]
            force, moment = (tuple((gain * part).tolist()) for part in (gear[:3], gear[3:]))
            components.append(WrenchInput(frame, name, force, moment))
        else:
            components.append(JointForce(variable, name, gain * model.gear(a)))
            if affine:
                components += _servo(model, where, variable, model.gear(a), m.actuator_biasprm[a, :3])
        if m.actuator_forcelimited[a] and affine:
            model.leave("forcerange of a servo", where)
        if model.given("actuator_delay", a):
            model.leave("delay", where)
        controls[name] = low, high
    for j in model.clamped():
        model.leave("actuatorfrcrange that no bound of one input expresses", f"joint {model.joints[j]!r}")
    return components, controls


def _servo(model: MjcfModel, where: str, variable: str, gear: float, bias: Any) -> list[Any]:
    b0, b1, b2 = map(float, bias)
    stiffness, damping = -b1 * gear**2, -b2 * gear**2
    components: list[Any] = []
    if stiffness > 0:
        components.append(TorsionalSpring(variable, stiffness, gear * b0 / stiffness))
    elif stiffness or b0:
        model.leave("a bias that is not a spring", where)
    if damping > 0:
        components.append(JointDamping(variable, damping))
    elif damping:
        model.leave("a bias that is not a damper", where)
    return components
