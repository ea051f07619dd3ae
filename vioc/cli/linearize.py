"""Command ``vioc linearize MODEL``, which linearizes one step: dx+ = A dx + B du.
It prints the matrices A and B, the eigenvalues of A and the controllability rank.
"""

from __future__ import annotations

import argparse
import json

import numpy as np

import vioc
from vioc.cli.models import load
from vioc.cli.options import Commands, start_options
from vioc.cli.printing import print_start, table
from vioc.dynamics.integrators.mechanical import MechanicalMap
from vioc.dynamics.starts import start


def add(commands: Commands) -> None:
    parser = commands.add(
        "linearize",
        run,
        "print the exact linearization of a step: A, B, eigenvalues, controllability",
        "  vioc linearize cart_pole\n  vioc linearize cart_pole --set theta=3.14159265 --dt 0.02 --json",
        start_options(),
    )
    parser.add_argument("--json", action="store_true", help="print JSON, all digits")


def run(args: argparse.Namespace) -> None:
    from vioc.control.analysis import controllability_rank, modes

    system = load(args.model)
    f = (vioc.ContactVI if system.inequalities else vioc.MidpointVI)(system, args.dt)
    x, u, report = start(f, args.set, args.guess)
    q, resting = x[: f.nq], not any(name.startswith("v.") and value for name, value in args.set)
    if report and resting:  # the fixed point of the map has a p of half a constraint impulse, not p = 0
        x = f.state_from_configurations(q, q, u)
    A, B = f.linearize(x, u)
    eigenvalues = np.linalg.eigvals(A)
    rank = controllability_rank(A, B) if f.nu else 0
    T = tangent(f, q)
    free = controllability_rank(T.T @ A @ T, T.T @ B) if f.nu else 0
    moved = float(np.abs(f.difference(x, f.step(x, u))).max())
    still = moved <= 1e-9 * (1 + np.abs(x).max())
    stability = modes(f, (x, u)).stability if still else None
    if args.json:
        result = {
            "dt": f.dt,
            "state_names": f.state_names,
            "input_names": f.input_names,
            "x": x.tolist(),
            "u": u.tolist(),
            "A": A.tolist(),
            "B": B.tolist(),
            "eigenvalues": [[s.real, s.imag] for s in eigenvalues],
            "stability": stability,
            "controllability_rank": rank,
            "controllability_rank_on_constraints": [free, T.shape[1]],
            "step": moved,
        }
        print(json.dumps(result, indent=1))
        return
    print(f)
    print_start(report)
    print("an equilibrium" if still else f"not an equilibrium: the state moves by {moved:.3g} in a step")
    print(table("A", f.state_names, f.state_names, A))
    if f.nu:
        print(table("B", f.state_names, f.input_names, B))
    print("eigenvalues")
    for s in sorted(eigenvalues, key=lambda s: (-abs(s), s.imag)):
        number = f"{s.real:+.8f}" + (f" {s.imag:+.8f}i" if s.imag else "")
        print(f"  {number:28s} |s| = {abs(s):.8f}")
    if stability:
        print(f"by the linearization  {stability}")
    print(f"controllability rank  {rank} of {f.ndx}")
    if f.nm:
        print(f"on the constraint manifold  {free} of {T.shape[1]}")
        print("(momenta that the constraints absorb count in the first, not in the second)")


def tangent(f: MechanicalMap, q: np.ndarray) -> np.ndarray:
    """Return a basis (ndx, r) of the state changes that satisfy the constraints.
    The constraints are linearized at the configuration q.

    At an equilibrium T' A T acts on these motions: configurations in ker Dh, and momenta modulo span Dh',
    which a step absorbs (docs/maths/linearization.md).
    """
    from scipy.linalg import block_diag, null_space

    if not f.nm:
        return np.eye(f.ndx)
    Dh = f.lagrangian.constraint_jacobian(q)
    return block_diag(null_space(Dh, 1e-9), null_space(Dh[:, : f.nd], 1e-9), np.eye(f.nk))
