"""Trees of a `vioc.System` in pinocchio, moved by scipy's DOP853: nothing of it is vioc's but the numbers.

A rod between two frames is a constraint on accelerations, solved with them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.integrate import solve_ivp

import vioc

ACCURACY = 1e-13


class Peer:
    """A tree of turning joints with gravity, joint damping, joint inputs, and perhaps a rod."""

    def __init__(self, system: vioc.System, rod: tuple[str, str, float] | None = None):
        import pinocchio as pin

        self.pin, self.model = pin, pin.Model()
        self.order: list[str] = []
        places: list[tuple[int, Any]] = []
        for node in system.nodes:
            joint, here = places[node.parent] if node.parent >= 0 else (0, pin.SE3.Identity())
            transform = node.frame.transform
            if transform.variable is None:
                linear, _ = transform.twist
                shift = np.array(linear, float) * float(transform.value)
                here = here * pin.SE3(np.eye(3), shift)
            else:
                axis = np.array(transform.twist[1], float)
                name = transform.variable.name
                joint = self.model.addJoint(joint, pin.JointModelRevoluteUnaligned(axis), here, name)
                self.order.append(name)
                here = pin.SE3.Identity()
            places.append((joint, here))
            mass = node.frame.mass
            if mass is not None:
                xx, yy, zz, xy, xz, yz = mass.inertia
                I = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]], float)
                body = pin.Inertia(float(mass.mass), np.array(mass.com, float), I)
                self.model.appendBodyToJoint(joint, body, here)
            if node.frame.name:
                frame = pin.Frame(node.frame.name, joint, 0, here, pin.FrameType.OP_FRAME)
                self.model.addFrame(frame, False)
        self.model.gravity.linear = np.array([0.0, 0.0, -9.81])
        self.data = self.model.createData()
        self.at = [system.variable_index(name) for name in self.order]
        self.rod = rod and (self.model.getFrameId(rod[0]), self.model.getFrameId(rod[1]))

    def acceleration(self, q: np.ndarray, v: np.ndarray, tau: np.ndarray) -> np.ndarray:
        pin, model, data = self.pin, self.model, self.data
        if not self.rod:
            return pin.aba(model, data, q, v, tau)
        pin.computeAllTerms(model, data, q, v)
        M, bias = np.triu(data.M) + np.triu(data.M, 1).T, data.nle.copy()
        pin.forwardKinematics(model, data, q, v, np.zeros_like(v))
        pin.updateFramePlacements(model, data)
        axes = pin.ReferenceFrame.LOCAL_WORLD_ALIGNED
        J = [pin.computeFrameJacobian(model, data, q, i, axes)[:3] for i in self.rod]
        a = [pin.getFrameClassicalAcceleration(model, data, i, axes).linear for i in self.rod]
        apart = data.oMf[self.rod[0]].translation - data.oMf[self.rod[1]].translation
        row, speed = apart @ (J[0] - J[1]), (J[0] - J[1]) @ v
        rest = speed @ speed + apart @ (a[0] - a[1])
        saddle = np.block([[M, row[:, None]], [row[None], np.zeros((1, 1))]])
        return np.linalg.solve(saddle, np.append(tau - bias, -rest))[:-1]

    def run(self, q0: np.ndarray, duration: float, inputs: np.ndarray, damping: float) -> np.ndarray:
        """q at the end, from rest; the rows of `inputs`, torques of all joints, each hold for as long."""
        at, n = self.at, len(self.at)
        y = np.concatenate([np.asarray(q0)[at], np.zeros(n)])
        for row in inputs:

            def rate(_: float, y: np.ndarray, row: np.ndarray = row[at]) -> np.ndarray:
                return np.concatenate([y[n:], self.acceleration(y[:n], y[n:], row - damping * y[n:])])

            span = 0.0, duration / len(inputs)
            y = solve_ivp(rate, span, y, method="DOP853", rtol=ACCURACY, atol=ACCURACY).y[:, -1]
        found = np.empty(n)
        found[at] = y[:n]
        return found
