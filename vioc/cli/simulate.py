"""Command ``vioc simulate MODEL``: compute, save, plot or animate a rollout."""

from __future__ import annotations

import argparse

import numpy as np

import vioc
from vioc.cli.models import load
from vioc.cli.options import Commands, check_target, seconds, start_options
from vioc.cli.printing import print_start, print_values
from vioc.compile import BACKENDS
from vioc.dynamics.description.system import System
from vioc.dynamics.starts import start
from vioc.errors import StepError

INTEGRATORS = {
    "midpoint": vioc.MidpointVI,
    "linear-time": vioc.LinearTimeVI,
    "contact": vioc.ContactVI,
    "maximal": vioc.MaximalVI,
}


def add(commands: Commands) -> None:
    parser = commands.add(
        "simulate",
        run,
        "simulate a model; save, plot or animate the result",
        "  vioc simulate cart_pole --set theta=0.3 --time 5 --plot fall.png\n"
        "  vioc simulate cart_pole --set theta=3 v.x=1 u.force=0.5 --animate push.gif --save push.npz",
        start_options(),
    )
    parser.add_argument("--time", type=seconds, default=10.0, metavar="T", help="how long, s (default 10)")
    parser.add_argument(
        "--integrator",
        choices=INTEGRATORS,
        help="default: midpoint; maximal where the model has contacts or limits, which it and contact take",
    )
    parser.add_argument(
        "--backend",
        choices=BACKENDS,
        default="virtual",
        help="what computes: CasADi's virtual machine (default), compiled C, or whichever pays",
    )
    parser.add_argument("--save", metavar="FILE", help="the trajectory, as .npz")
    parser.add_argument("--plot", metavar="FILE", help="the states over time, as .png, .pdf or .svg")
    parser.add_argument("--animate", metavar="FILE", help="an animation, as .gif, .html or .mp4")


def run(args: argparse.Namespace) -> None:
    from vioc.viz import film

    check_target("--save", args.save, (".npz",))
    check_target("--plot", args.plot, (".png", ".pdf", ".svg"))
    check_target("--animate", args.animate, film.SUFFIXES)
    steps = round(args.time / args.dt)
    if steps < 1:
        raise ValueError(f"--time {args.time:g} is shorter than one step of {args.dt:g} s")
    if steps > np.iinfo(np.int32).max:
        raise ValueError(f"--time {args.time:g} is {steps:.3g} steps of {args.dt:g} s, more than can be kept")
    f = _map(load(args.model), args)
    x, u, report = start(f, args.set, args.guess)
    names, values = f.state_names, x
    if isinstance(f, vioc.MaximalVI):  # its states are not readable
        names = (*f.system.variables, *(f"v.{n}" for n in f.system.variables))
        values = np.concatenate(f.minimal(x))
    if report:
        print_start(report)
        print_values(f, "state at the start", names, values)
    failed: StepError | None = None
    try:
        run = f.rollout(x, u, steps=steps)
    except StepError as error:  # show the motion before the failed step
        failed = error
        if error.trajectory is None or not len(error.trajectory.u):
            raise
        run = error.trajectory
        print(f"step {failed.k} failed; up to it:")
    energy = run.energy
    print(run)
    print_values(f, "state at the end", names, np.array([run[n][-1] for n in names]))
    print(
        f"energy  {energy[0]:.8g} J at the start, {energy[-1]:.8g} J at the end, range {np.ptp(energy):.3g} J"
    )
    if args.save:
        print(f"wrote {run.save(args.save)}")
    if args.plot:
        axes = run.plot(*names)
        axes[0].figure.savefig(args.plot, dpi=150)
        print(f"wrote {args.plot}")
    if args.animate:
        from vioc.viz import animate

        animate(run, args.animate)
        print(f"wrote {args.animate}")
    if failed is not None:
        raise failed


def _map(system: System, args: argparse.Namespace) -> vioc.MidpointVI | vioc.LinearTimeVI | vioc.MaximalVI:
    integrator = args.integrator or ("maximal" if system.inequalities else "midpoint")
    return INTEGRATORS[integrator](system, args.dt, backend=args.backend)
