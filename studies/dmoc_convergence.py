"""How the optimum of DMOC converges to the continuous one, on problems whose answer is known.

- double integrator, rest to rest over 1 m: least effort in 1 s, 6 d^2/T^3; least time with |u| <= 1, 2 s;
- brachistochrone: a bead of unit mass under gravity and a force across its velocity that does no work; the
  answer is the cycloid's time, and a constant rate of turn;
- transfer between circular orbits (r = 1 to 1.5, mu = 1) with least effort in a given time; the answer is
  Pontryagin's boundary-value problem, solved by scipy to 1e-10;
- min of the integral of y^2 + u^2 with y' = -y^3 + u from y(0) = 1 to y(tf) = 1.5, tf = 1e4: two boundary
  layers, three phases. The Hamilton-Jacobi equation gives the answer as two integrals.

[OJM] is Ober-Blöbaum, Junge, Marsden, see docs/maths/dmoc.md. For the same steps the transfer is also solved
by collocation in CasADi, written out here without vioc: one Gauss point (implicit midpoint) and the
trapezoidal rule, both of order 2.
"""

from __future__ import annotations

from typing import Any

import casadi as ca
import numpy as np
from scipy.integrate import quad, solve_bvp
from scipy.optimize import brentq

import vioc
from studies.harness import Claim, Report, Study, at_most, count_ticks, near
from vioc import Gravity, JointForce, System, UserForce, UserPotential, rz, tx, tz, wrench_inputs
from vioc.control import Cost, dmoc

STEPS = (20, 40, 80, 160)
G = 9.81
DROP = (1.0, -0.65)  # m, where the brachistochrone ends
TRANSFER = 4.0  # time units
RADIUS = 1.5
LAYER, WHOLE = 8.0, 1e4
TIGHT = 1e-11


def order(text: str) -> Claim:
    return Claim(f"order in dt: {text}", near(2, 0.2), published=2.0, source="[OJM]")


STUDY = Study(
    __file__,
    "DMOC converges to the continuous optimum at order 2",
    effort=order("cost of the least-effort double integrator"),
    effort_error=Claim("its relative error with 80 steps", at_most(1e-3)),
    time=order("time of the least-time double integrator, odd numbers of steps"),
    time_even=Claim("error of that time with even numbers of steps, which can switch on time", at_most(1e-6)),
    cycloid=order("time of the brachistochrone"),
    cycloid_limit=Claim("its limit, relative to the cycloid's time", at_most(1e-5)),
    orbit=order("cost of the orbital transfer"),
    orbit_limit=Claim("its limit, relative to scipy's boundary-value solution", at_most(1e-5)),
    layers=order("cost of the problem with two boundary layers"),
    layers_limit=Claim("its limit", near(6.7241, 5e-4), published=6.7241, source="reference solutions, 9"),
    closed_form=Claim("that limit against the Hamilton-Jacobi integrals, relative", at_most(1e-5)),
    gauss=Claim("error of the transfer's cost: collocation at one Gauss point over DMOC's"),
    trapezoid=Claim("likewise, trapezoidal collocation"),
)


@STUDY.body
def run(report: Report) -> None:
    steps = STEPS[:3] if report.quick else STEPS
    curves = {
        "least effort": (errors(effort, steps, 6.0)),
        "least time (odd)": errors(least_time, [n + 1 for n in steps], 2.0),
        "brachistochrone": errors(brachistochrone, steps, cycloid_time()),
        "orbital transfer": errors(transfer, steps, transfer_reference()),
        "boundary layers": errors(layers, steps, hamilton_jacobi()),
    }
    keys = ("effort", "time", "cycloid", "orbit", "layers")
    for key, (counts, _, error) in zip(keys, curves.values(), strict=True):
        report.measure(**{key: -np.polyfit(np.log(counts[-3:]), np.log(error[-3:]), 1)[0]})
    report.measure(effort_error=errors(effort, [80], 6.0)[2][0])
    report.measure(time_even=max(abs(least_time(n) - 2.0) for n in steps))
    for key, name in (
        ("cycloid", "brachistochrone"),
        ("orbit", "orbital transfer"),
        ("layers", "boundary layers"),
    ):
        _, values, _ = curves[name]
        exact = {"cycloid": cycloid_time, "orbit": transfer_reference, "layers": hamilton_jacobi}[key]()
        limit = (4 * values[-1] - values[-2]) / 3
        if key == "layers":
            report.measure(layers_limit=limit, closed_form=abs(limit / exact - 1))
        else:
            report.measure(**{f"{key}_limit": abs(limit / exact - 1)})
    exact = transfer_reference()
    peers = {
        scheme: [abs(collocation(n, scheme) / exact - 1) for n in steps] for scheme in ("gauss", "trapezoid")
    }
    ours = curves["orbital transfer"][2]
    report.measure(**{scheme: e[-1] / ours[-1] for scheme, e in peers.items()})
    draw(report, curves, peers)


def errors(solve: Any, steps: Any, exact: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Step counts, optimal values, relative errors."""
    values = np.array([solve(n) for n in steps])
    return np.array(steps), values, np.abs(values / exact - 1)


# -- the problems -----------------------------------------------------------------------------------


def mass(dt: float) -> vioc.MidpointVI:
    return vioc.MidpointVI(System(tx("x", mass=1.0), JointForce("x", "u")), dt)


def effort(n: int) -> float:
    f = mass(1 / n)
    cost = Cost(f, 0.5 * ca.sumsqr(f.symbols.u))
    return dmoc.solve(f, cost, steps=n, initial=[0, 0], final=[1, 0], tolerance=TIGHT).cost


def least_time(n: int) -> float:
    f = mass(2 / n)
    best = dmoc.solve(
        f,
        dmoc.minimum_time(f),
        steps=n,
        initial=[0, 0],
        final=[1, 0],
        bounds={"u.u": 1.0},
        duration=(1.0, 4.0),
        tolerance=TIGHT,
    )
    return best.duration


def across(k: Any) -> dict[str, Any]:
    """A force across the velocity: it turns the bead at the rate `turn` and does no work."""
    return {"x": -k.u("turn") * k.v("z"), "z": k.u("turn") * k.v("x")}


def brachistochrone(n: int) -> float:
    bead = tx("x")[tz("z", name="bead", mass=1.0)]
    f = vioc.MidpointVI(System(bead, Gravity(0, 0, -G), UserForce(across, ("turn",))), cycloid_time() / n)
    along = np.linspace(0.0, 1.0, n + 1)[:, None]
    guess = along * f.state({"p.x": 2.0, "p.z": -1.0})  # straight down, from rest with constant acceleration
    guess += along**2 * f.state({"x": DROP[0], "z": DROP[1]})
    best = dmoc.solve(
        f,
        dmoc.minimum_time(f),
        (guess, np.full((n, 1), 2.0)),
        steps=n,
        initial=f.state(),
        final={"x": DROP[0], "z": DROP[1]},
        duration=(0.2, 1.0),
        tolerance=TIGHT,
    )
    return best.duration


def cycloid_time() -> float:
    """x = R (s - sin s), z = -R (1 - cos s), s = t sqrt(g / R)."""
    x, z = DROP[0], -DROP[1]
    s = brentq(lambda s: (s - np.sin(s)) * z - (1 - np.cos(s)) * x, 0.5, 6.0, xtol=1e-14)
    return float(s * np.sqrt(x / (s - np.sin(s)) / G))


def attraction(k: Any) -> Any:
    return -1 / k.q("r")


def transfer(n: int) -> float:
    craft = rz("phi")[tx("r", name="craft", mass=1.0)]
    thrust = wrench_inputs("craft", fx="radial", fy="tangential")
    f = vioc.MidpointVI(System(craft, UserPotential(attraction), thrust), TRANSFER / n)
    start, end = (
        f.initial_state({"r": 1.0}, {"phi": 1.0}),
        f.initial_state({"r": RADIUS}, {"phi": RADIUS**-1.5}),
    )
    guess = np.linspace(start, end, n + 1)
    guess[:, f.state_names.index("phi")] = np.linspace(0, 0.75 * TRANSFER, n + 1)
    final = {name: end[f.state_names.index(name)] for name in ("r", "p.r", "p.phi")}
    cost = Cost(f, 0.5 * ca.sumsqr(f.symbols.u))
    return dmoc.solve(f, cost, (guess, None), steps=n, initial=start, final=final, tolerance=TIGHT).cost


def transfer_reference() -> float:
    """The same by Pontryagin's conditions; r, dr, angular momentum and their costates."""

    def rhs(t, y):
        r, v, h, a, b, c, _ = y
        radial, tangential = -b, -c * r
        return np.array(
            [
                v,
                h**2 / r**3 - 1 / r**2 + radial,
                r * tangential,
                b * (3 * h**2 / r**4 - 2 / r**3) - c * tangential,
                -a,
                -2 * h * b / r**3,
                0.5 * (radial**2 + tangential**2),
            ]
        )

    def ends(y0, y1):
        return np.array([y0[0] - 1, y0[1], y0[2] - 1, y0[6], y1[0] - RADIUS, y1[1], y1[2] - np.sqrt(RADIUS)])

    t = np.linspace(0, TRANSFER, 60)
    y = np.zeros((7, 60))
    y[0], y[2] = np.linspace(1, RADIUS, 60), np.linspace(1, np.sqrt(RADIUS), 60)
    found = solve_bvp(rhs, ends, t, y, tol=1e-10, max_nodes=100000)
    assert found.success, found.message
    return float(found.y[6, -1])


class MidpointRule(vioc.CasadiMap):
    """x1 = x + h rhs((x + x1)/2, u) as an implicit map; its explicit step is not used here."""

    def __init__(self, rhs: ca.Function, dt: float):
        self.rhs = rhs
        x, u = rhs.sx_in()
        super().__init__(ca.Function("euler", [x, u], [x + dt * rhs(x, u)]), dt, state_names=("y",))

    @property
    def residual(self) -> ca.Function:
        x, u, lam, theta, dt = self.symbols
        x1, t = ca.SX.sym("x1", self.nx), ca.SX.sym("t")
        return ca.Function(
            "residual", [x, u, x1, lam, t, dt, theta], [x1 - x - dt * self.rhs((x + x1) / 2, u)]
        )


def layers(n: int) -> float:
    x, u = ca.SX.sym("y"), ca.SX.sym("u")
    f = MidpointRule(ca.Function("rhs", [x, u], [u - x**3]), LAYER / (2 * n))
    cost = Cost(f, f.symbols.x**2 + f.symbols.u**2)
    options = {"quadrature": "midpoint"}
    first = dmoc.Phase(f, 4 * n, cost, initial=[1.0], duration=LAYER, **options)
    middle = dmoc.Phase(f, 10, cost, duration=WHOLE - 2 * LAYER, **options)
    last = dmoc.Phase(f, 4 * n, cost, final=[1.5], duration=LAYER, **options)
    flat = [(np.zeros((p.steps + 1, 1)), None) for p in (first, middle, last)]
    # the verdict is about the map's own steps, which are another rule's
    return dmoc.Problem([first, middle, last]).solve(flat, tolerance=TIGHT, raise_on_failure=False).cost


def hamilton_jacobi() -> float:
    """From y to rest at 0, and from 0 to y: V' = 2 (-+ y^3 + sqrt(y^6 + y^2))."""
    down = quad(lambda y: 2 * (np.sqrt(y**6 + y**2) - y**3), 0, 1.0, epsabs=1e-13)[0]
    up = quad(lambda y: 2 * (np.sqrt(y**6 + y**2) + y**3), 0, 1.5, epsabs=1e-13)[0]
    return down + up


# -- the peer ---------------------------------------------------------------------------------------


def collocation(n: int, scheme: str) -> float:
    """The orbital transfer by direct collocation of order 2, in r, phi, dr, dphi."""
    h = TRANSFER / n
    x, u = ca.SX.sym("x", 4), ca.SX.sym("u", 2)
    r, _, v, w = ca.vertsplit(x)
    rate = ca.vertcat(v, w, r * w**2 - 1 / r**2 + u[0], (u[1] - 2 * v * w) / r)
    rhs = ca.Function("rhs", [x, u], [rate])
    X = ca.MX.sym("X", 4, n + 1)
    U = ca.MX.sym("U", 2, n if scheme == "gauss" else n + 1)
    start, stop = X[:, :-1], X[:, 1:]
    if scheme == "gauss":
        slope, effort_sum = rhs.map(n)((start + stop) / 2, U), h / 2 * ca.sumsqr(U)
    else:
        slope = (rhs.map(n)(start, U[:, :-1]) + rhs.map(n)(stop, U[:, 1:])) / 2
        effort_sum = h / 4 * (ca.sumsqr(U[:, :-1]) + ca.sumsqr(U[:, 1:]))
    end = ca.vertcat(X[0, -1] - RADIUS, X[2, -1], X[3, -1] - RADIUS**-1.5)
    g = ca.vertcat(ca.vec(stop - start - h * slope), X[:, 0] - ca.DM([1, 0, 0, 1]), end)
    z = ca.vertcat(ca.vec(X), ca.vec(U))
    options = {"print_time": False, "ipopt.print_level": 0, "ipopt.sb": "yes", "ipopt.tol": TIGHT}
    solver = ca.nlpsol("peer", "ipopt", {"x": z, "f": effort_sum, "g": g}, options)
    guess = np.linspace([1, 0, 0, 1], [RADIUS, 0.75 * TRANSFER, 0, RADIUS**-1.5], n + 1)
    found = solver(x0=np.concatenate([guess.ravel(), np.zeros(U.numel())]), lbg=0, ubg=0)
    assert solver.stats()["success"]
    return float(found["f"])


def draw(report: Report, curves: dict, peers: dict[str, list[float]]) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 6), layout="constrained")
    for name, (counts, _, error) in curves.items():
        axes.loglog(counts, error, "o-", label=f"DMOC: {name}")
    counts = curves["orbital transfer"][0]
    for name, error in peers.items():
        axes.loglog(counts, error, "x--", lw=1, label=f"orbital transfer, {name} collocation")
    axes.loglog(counts, 0.15 / counts**2.0, color="0.6", lw=1, label="slope 2")
    axes.set(xlabel="steps (per layer / 4 for the boundary layers)", ylabel="relative error of the optimum")
    count_ticks(axes, counts)
    axes.grid(alpha=0.3)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize="small")
    report.save(figure)


if __name__ == "__main__":
    STUDY.main()
