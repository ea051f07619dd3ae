"""A disc that rolls on a plane and wobbles, by Euler's equations."""

from __future__ import annotations

import numpy as np
from scipy.integrate import solve_ivp

M, R, G = 1.0, 0.3, 9.81
ACROSS, AXIAL = M * R**2 / 4, M * R**2 / 2  # kg m^2
WOBBLE = {"x": 3.0, "yaw": 2.0, "spin": 10.0}  # rates at the start


def euler(lean: float, rates: dict[str, float], seconds: float) -> np.ndarray:
    """lean, its rate, yaw rate and spin rate at the end, from the balance of moments about the contact.

    With l the lean, W the yaw rate and n = spin + W sin l the axial rate.
    """
    A, C = ACROSS, AXIAL

    def flow(t: float, s: np.ndarray) -> list[float]:
        lean, dl, W, n = s
        sin, cos = np.sin(lean), np.cos(lean)
        ddl = (M * G * R * sin - A * W**2 * sin * cos + (C + M * R**2) * W * n * cos) / (A + M * R**2)
        dn = -M * R**2 * W * dl * cos / (C + M * R**2)
        dW = (2 * A * W * dl * sin - C * n * dl) / (A * cos)
        return [dl, ddl, dW, dn]

    W = rates["yaw"]
    start = [lean, 0.0, W, rates["spin"] + W * np.sin(lean)]
    end, dl, W, n = solve_ivp(flow, (0, seconds), start, "DOP853", rtol=1e-12, atol=1e-13).y[:, -1]
    return np.array([end, dl, W, n - W * np.sin(end)])
