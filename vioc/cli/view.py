"""Command ``vioc view MODEL [TRAJECTORY ...]``: show a mechanism in the browser."""

from __future__ import annotations

import argparse
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vioc.cli.models import load, without_contacts
from vioc.cli.options import Commands, check_target, port, start_options
from vioc.cli.printing import remarks
from vioc.errors import ModelError

if TYPE_CHECKING:
    from vioc import System

SHOWN = ("frames", "names", "inertia", "skeleton")


def add(commands: Commands) -> None:
    parser = commands.add(
        "view",
        run,
        "show a model in the browser, or trajectories of it",
        "  vioc view cart_pole\n"
        "  vioc view cart_pole fall.npz --follow cart\n"
        "  vioc view robot.urdf reference=plan.npz closed=run.npz --html run.html",
        start_options(),
    )
    parser.add_argument(
        "trajectories",
        metavar="TRAJECTORY",
        nargs="*",
        help="files of `vioc simulate --save` or Trajectory.save, each as FILE or LABEL=FILE; without any "
        "the model stands still, with a slider for every variable",
    )
    parser.add_argument("--html", metavar="FILE", help="write one self-contained page instead, to send")
    parser.add_argument(
        "--fps", type=float, default=30.0, help="samples per second of that page (default 30)"
    )
    parser.add_argument("--speed", type=float, default=1.0, help="seconds shown per second (default 1)")
    parser.add_argument(
        "--follow", metavar="FRAME", help='what stays in the middle: a frame, "center of mass"'
    )
    parser.add_argument("--show", nargs="+", choices=SHOWN, default=[], help="what else to show at first")
    parser.add_argument("--meshes", nargs="+", metavar="DIR", help="where the meshes of a URDF file are")
    parser.add_argument("--bare", action="store_true", help="draw a URDF file's links without their shapes")
    parser.add_argument("--floating", action="store_true", help="the base of a URDF file moves freely")
    parser.add_argument("--host", default="127.0.0.1", help="where to listen (default: this machine only)")
    parser.add_argument("--port", type=port, default=8080, help="first port that is tried (default 8080)")
    parser.add_argument("--no-open", action="store_true", help="do not open a browser")


def run(args: argparse.Namespace) -> None:
    from vioc.viz.viewer import view
    from vioc.viz.viewer.player import load_viser

    check_target("--html", args.html, (".html", ".htm"))
    load_viser()  # before anything is computed
    options: dict[str, Any] = dict(follow=args.follow, show=args.show, host=args.host, port=args.port)
    options |= dict(speed=args.speed, fps=args.fps, html=args.html, meshes=args.meshes)
    model = _model(args)
    system: System = getattr(model, "system", model)
    if model is not system and not args.bare:
        options["visuals"] = args.model
    with remarks():
        shown = _runs(args.trajectories, system) if args.trajectories else model
        if not args.trajectories:
            options["q"] = _pose(args, system)
            shown = system if args.bare else model
        result = view(shown, **options)
    if args.html:
        print(f"wrote {result}")
        return
    print(f"{result.url}  (Ctrl-C ends it)", flush=True)
    if not args.no_open:
        webbrowser.open(result.url)
    result.wait()


def _model(args: argparse.Namespace) -> Any:
    """Return the system of a model, or the robot of a URDF file."""
    if Path(args.model).suffix.lower() != ".urdf":
        if args.floating:
            raise ModelError("--floating is for URDF files")
        return load(args.model)
    from vioc.dynamics.formats.urdf import read_urdf

    with remarks():
        return read_urdf(args.model, base="floating" if args.floating else "fixed", inputs="all")


def _runs(given: list[str], system: System) -> dict[str, Any]:
    """Return saved trajectories by label, which is by default the name of the file."""
    from vioc.viz.recorded import read_recorded

    runs: dict[str, Any] = {}
    for text in given:
        label, equals, file = text.partition("=")
        if not equals or Path(text).is_file():
            label, file = Path(text).stem, text
        if label in runs:
            raise ModelError(f"two trajectories are called {label!r}; name them LABEL=FILE")
        runs[label] = read_recorded(file, system)
    return runs


def _pose(args: argparse.Namespace, system: System) -> Any:
    """Return the configuration that the options of the command specify.
    If the system has constraints, variables that no option sets get values that satisfy the constraints.
    """
    import vioc
    from vioc.dynamics.starts import start

    if system.constraints:
        f = vioc.MidpointVI(without_contacts(system), args.dt)
        return start(f, args.set, args.guess).x[: f.nq]
    return dict(args.set)
