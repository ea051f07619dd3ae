"""ROS 2 messages of trajectories, made without ROS.

Messages are of the type ``trajectory_msgs/msg/JointTrajectory``::

    message = joint_trajectory(run, ["shoulder", "elbow"], efforts={"shoulder": "u0", "elbow": "u1"})

A node fills the message from it with ``rosidl_runtime_py.set_message_fields(JointTrajectory(), message)``.
It can also be saved as CSV.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vioc.runs.trajectory import Trajectory

SECOND = 1_000_000_000  # ns


def joint_trajectory(
    run: Trajectory,
    joints: Sequence[str],
    *,
    efforts: Mapping[str, str] | None = None,
    frame: str = "",
) -> dict[str, Any]:
    """Return a ``JointTrajectory`` message of ROS 2, as a dict of its fields.

    Parameters
    ----------
    run : Trajectory
        With the quantities NAME (rad or m) and v.NAME (rad/s or m/s) of each joint.
    joints : names
        In the order of the message.
    efforts : dict of joint to name of an input, optional
        For every joint (N m or N). An input acts from its sample on; the last point repeats the last one.
    frame : str
        ``header.frame_id``.

    Returns
    -------
    dict
        ``header``, ``joint_names``, ``points`` of N + 1 with ``positions``, ``velocities``,
        ``accelerations`` (left empty, as ROS allows), ``effort`` and ``time_from_start``, which is 0 at
        the first sample.

    Raises
    ------
    ValueError
        No joints, or a joint twice; efforts of other joints.
    ModelError
        A name that the map does not know.
    """
    joints = list(joints)
    if not joints or len(set(joints)) != len(joints):
        raise ValueError(f"joint_trajectory: expected names of different joints, got {joints}")
    if efforts is not None and set(efforts) != set(joints):
        odd = sorted(set(efforts) ^ set(joints))
        raise ValueError(
            f"joint_trajectory: efforts: expected one for each joint, it differs in {', '.join(odd)}"
        )
    q = np.stack([run[name] for name in joints], axis=1)
    v = np.stack([run[f"v.{name}"] for name in joints], axis=1)
    force = np.empty((len(q), 0))
    if efforts is not None:
        inputs = np.stack([run[f"u.{efforts[name].removeprefix('u.')}"] for name in joints], axis=1)
        force = inputs[np.minimum(np.arange(len(q)), len(run.u) - 1)]
    points = [
        {
            "positions": position.tolist(),
            "velocities": rate.tolist(),
            "accelerations": [],
            "effort": effort.tolist(),
            "time_from_start": _duration(t),
        }
        for position, rate, effort, t in zip(q, v, force, run.t - run.t[0], strict=True)
    ]
    header = {"stamp": {"sec": 0, "nanosec": 0}, "frame_id": frame}
    return {"header": header, "joint_names": joints, "points": points}


def save_joint_trajectory(message: Mapping[str, Any], path: str | os.PathLike[str]) -> Path:
    """Write a joint trajectory message to a CSV file with one row for each point.

    Columns are ``time`` (integer nanoseconds, as in bags) and, flattened as by ROS tools, ``positions/NAME``,
    ``velocities/NAME`` and, if given, ``effort/NAME``. Numbers keep all their bits.
    """
    path = Path(path)
    fields = [f for f in ("positions", "velocities", "effort") if message["points"][0][f]]
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["time", *(f"{field}/{name}" for field in fields for name in message["joint_names"])])
        for point in message["points"]:
            since = point["time_from_start"]
            time = since["sec"] * SECOND + since["nanosec"]
            rows.writerow([time, *(repr(value) for field in fields for value in point[field])])
    return path


def _duration(t: float) -> dict[str, int]:
    seconds, nanoseconds = divmod(round(float(t) * SECOND), SECOND)
    return {"sec": seconds, "nanosec": nanoseconds}
