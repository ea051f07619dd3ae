"""``vioc info MODEL``: what a model is made of."""

from __future__ import annotations

import argparse

import numpy as np

import vioc
from vioc.checks import few
from vioc.cli.models import load, without_contacts
from vioc.cli.options import Commands, start_options
from vioc.cli.printing import print_start, print_values
from vioc.errors import ConstraintError
from vioc.starts import start


def add(commands: Commands) -> None:
    commands.add(
        "info",
        run,
        "print a model: its tree, states, inputs, mass matrix and constraints",
        "  vioc info cart_pole\n  vioc info my_robot.sexp --set shoulder=0.5",
        start_options(),
    )


def run(args: argparse.Namespace) -> None:
    from vioc.dynamics.consistency import constraint_rank

    system = load(args.model)
    print(system, flush=True)
    f = vioc.MidpointVI(without_contacts(system), args.dt)
    print()
    try:
        x, u, found = start(f, args.set, args.guess)
    except ConstraintError:
        print(f"state  {', '.join(f.state_names)}\ninput  {', '.join(f.input_names) or 'none'}", flush=True)
        raise
    q = x[: f.nq]
    print_start(found)
    print_values(f, "state", f.state_names, x)
    print_values(f, "input", f.input_names, u, "u.")
    M = f.lagrangian.mass_matrix(q)[: f.nd, : f.nd]
    print(f"mass matrix  {f.nd} x {f.nd}, condition {np.linalg.cond(M):.3g}")
    rank, redundant = constraint_rank(f.lagrangian, q)
    if f.nm:
        print(f"constraints  {f.nm} of rank {rank}; redundant: {', '.join(redundant) or 'none'}")
    print(f"degrees of freedom  {f.nd - rank}")
    if system.inequalities:
        print(f"contacts and limits  {few(system.inequality_names)}; vioc.MaximalVI simulates them")
