"""SE(3) on arrays by matrix exponentials: shares no code with vioc's closed forms."""

from __future__ import annotations

import numpy as np
from scipy.linalg import expm
from scipy.spatial.transform import Rotation

from support.numpy_tree import hat


def exp(V):
    """The pose (4, 4) of a twist (6,)."""
    return expm(hat(np.asarray(V, float)))


def random_pose(random):
    """A pose (4, 4)."""
    T = np.eye(4)
    T[:3, :3], T[:3, 3] = Rotation.from_rotvec(random.normal(size=3)).as_matrix(), random.normal(size=3)
    return T


def Ad(T):
    """Ad_T (6, 6): moves twists from T's frame into the frame that T is written in."""
    R, p = T[:3, :3], T[:3, 3]
    P = hat(np.concatenate([np.zeros(3), p]))[:3, :3]
    return np.block([[R, P @ R], [np.zeros((3, 3)), R]])


def ad(V):
    """ad_V (6, 6): ad_V W is the bracket of the twists V and W."""
    w, v = (hat(np.concatenate([np.zeros(3), a]))[:3, :3] for a in (V[3:], V[:3]))
    return np.block([[w, v], [np.zeros((3, 3)), w]])


def dexp(V):
    """The right-trivialized tangent of exp (6, 6): the integral of exp(s ad_V) over s in [0, 1]."""
    block = np.zeros((12, 12))
    block[:6, :6], block[:6, 6:] = ad(V), np.eye(6)
    return expm(block)[:6, 6:]
