"""Command ``vioc info MODEL``, which prints the contents of a model."""

from __future__ import annotations

import argparse

import numpy as np

import vioc
from vioc.checks import few, plain
from vioc.cli.models import load, without_contacts
from vioc.cli.options import Commands, start_options
from vioc.cli.printing import ROUNDING, print_start, print_values
from vioc.dynamics.starts import start
from vioc.dynamics.terms.potentials import Gravity
from vioc.errors import ConstraintError


def add(commands: Commands) -> None:
    commands.add(
        "info",
        run,
        "print a model: its tree, states, inputs, mass matrix and constraints",
        "  vioc info cart_pole\n  vioc info my_robot.sexp --set shoulder=0.5",
        start_options(),
    )


def print_totals(f: vioc.MidpointVI, x: np.ndarray) -> None:
    """Print a model's total mass, its extent in x, y and z, and its gravity.
    These values reveal wrong units or signs.
    """
    system = f.system
    masses = [float(node.frame.mass.mass) for node in system.nodes if node.frame.mass]
    places = np.vstack([f.frame_positions(x)[0], np.zeros(3)])
    size = np.where(np.ptp(places, axis=0) > ROUNDING, np.ptp(places, axis=0), 0.0)
    print(f"total mass  {sum(masses):.6g} kg in {len(masses)} {'body' if len(masses) == 1 else 'bodies'}")
    print(
        f"size  {' x '.join(plain(s) for s in size)} m, the box of x, y, z around all frames and the origin"
    )
    pulls = [[float(v) for v in (p.x, p.y, p.z)] for p in system.potentials if isinstance(p, Gravity)]
    print(f"gravity  {_direction(np.sum(pulls, axis=0)) if pulls else 'none'}")


def _direction(g: np.ndarray) -> str:
    """Format an acceleration vector as text, with its magnitude and direction."""
    size = float(np.linalg.norm(g))
    if not size:
        return "0 m/s^2"
    along = np.flatnonzero(g)
    axis = "+-"[int(g[along[0]] < 0)] + "xyz"[along[0]]
    where = axis if len(along) == 1 else f"({', '.join(plain(v) for v in g / size)})"
    return f"{size:.6g} m/s^2 along {where}"


def run(args: argparse.Namespace) -> None:
    from vioc.dynamics.consistency import constraint_rank

    system = load(args.model)
    print(system, flush=True)
    f = vioc.MidpointVI(without_contacts(system), args.dt)
    print()
    try:
        x, u, report = start(f, args.set, args.guess)
    except ConstraintError:
        print(f"state  {', '.join(f.state_names)}\ninput  {', '.join(f.input_names) or 'none'}", flush=True)
        raise
    q = x[: f.nq]
    print_start(report)
    print_values(f, "state", f.state_names, x)
    print_values(f, "input", f.input_names, u, "u.")
    print_totals(f, x)
    M = f.lagrangian.mass_matrix(q)[: f.nd, : f.nd]
    print(f"mass matrix  {f.nd} x {f.nd}, condition {np.linalg.cond(M):.3g}")
    rank, redundant = constraint_rank(f.lagrangian, q)
    if f.nm:
        print(f"constraints  {f.nm} of rank {rank}; redundant: {', '.join(redundant) or 'none'}")
    print(f"degrees of freedom  {f.nd - rank}")
    if system.inequalities:
        hint = "vioc.ContactVI and MaximalVI simulate them"
        print(f"contacts and limits  {few(system.inequality_names)}; {hint}")
