"""Poses of URDF joints by matrix exponentials, which share no code with the reader."""

import warnings

import numpy as np
from scipy.linalg import expm

from vioc import read_urdf
from vioc.errors import RobotWarning

STEP = 1e-30  # of complex derivatives, which have no cancellation


def quietly(path, **options):
    """Return what `read_urdf` reads, without its warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RobotWarning)
        return read_urdf(path, **options)


def hat(linear, angular):
    """The matrix (4, 4) of a twist."""
    (x, y, z), (a, b, c) = linear, angular
    return np.array([[0, -c, b, x], [c, 0, -a, y], [-b, a, 0, z], [0, 0, 0, 0]])


def turn(i, angle):
    """The pose (4, 4) turned about axis i."""
    return expm(angle * hat(np.zeros(3), np.eye(3)[i]))


def shift(i, amount):
    """The pose (4, 4) moved along axis i."""
    return expm(amount * hat(np.eye(3)[i], np.zeros(3)))


def free(values):
    """The pose of a floating joint: three translations, then rotations about z, y and x."""
    x, y, z, yaw, pitch, roll = values
    return shift(0, x) @ shift(1, y) @ shift(2, z) @ turn(2, yaw) @ turn(1, pitch) @ turn(0, roll)
