"""Controllability and observability of discrete-time maps.
The results are ranks, Gramians, and directions of small state deviations with named components.

Maths: docs/maths/analysis.md; how to read a report: docs/analysis.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import null_space, orth

from vioc.checks import as_count, as_names, check_array, few
from vioc.control.analysis.ellipses import boundary, semi_axes
from vioc.control.analysis.gramians import Steering, gramian_factor, reversed_pair, steer
from vioc.control.linear.linear_system import LinearSystem, linear_system, sizes
from vioc.control.linear.rank import TOLERANCE, Subspace, eliminated, reached, row_sizes, staircase
from vioc.control.linear.weights import weight_matrix
from vioc.drawing import plots
from vioc.maps.protocol import OneStepMap
from vioc.names import INPUTS, by_name, in_order

SHOWN = 6  # number of names in a line of a report
ROUNDING = 1e-11  # relative gain that rounding in A, B and their products can cause
SMALL = 1e-6  # smaller fractions and weights are rounding


class Direction(NamedTuple):
    """Direction of a small deviation of the state, with its gain.
    For controllability, the gain tells how strongly inputs move the state along the direction. For
    observability, it tells how strongly a deviation in this direction appears in the outputs.

    Attributes
    ----------
    gain : float
        Motion of the last state along the direction (in `scales`) by one unit of input energy; for
        observability, the root of the output energy of a unit initial error along it.
    weights : dict of str to float
        Components of the direction by error, in units of `scales`; the sum of squares is 1.
    """

    gain: float
    weights: dict[str, float]

    def __str__(self) -> str:
        return f"{self.gain:10.3g}   {_combination(self.weights)}"


@dataclass(frozen=True)
class Structure:
    """Report on the controllability or observability of a system.

    Attributes
    ----------
    what : {"controllable", "observable"}
    names : tuple of ndx str
    scales : (ndx,)
        Magnitude of each error that counts as 1.
    subspace : Subspace
        Controllable directions, or the complement of the unobservable ones, in coordinates of `basis`.
    basis : (ndx, r)
        Basis of the tangent space at the end of the horizon (controllability), or at its start.
    factor : (r, c)
        W = basis factor factor' basis' is the Gramian.
    lost : (size - rank,), complex, or None
        About an equilibrium: the uncontrollable, or unobservable, eigenvalues of A.
    steps : int
        Number of steps of the Gramian's horizon.
    manifold : bool
    units : dict of str to str
        Units of the states, if known.
    """

    what: str
    names: tuple[str, ...]
    scales: np.ndarray = field(repr=False)
    subspace: Subspace
    basis: np.ndarray = field(repr=False)
    factor: np.ndarray = field(repr=False)
    lost: np.ndarray | None
    steps: int
    manifold: bool
    _pair: tuple[Any, Any] = field(repr=False)
    _root: np.ndarray = field(repr=False)  # (nu, m), R^(-1/2): from scaled inputs to inputs
    units: dict[str, str] = field(default_factory=dict, repr=False)

    @property
    def rank(self) -> int:
        return self.subspace.rank

    @property
    def size(self) -> int:
        """Dimension of the space of small state deviations.
        If `manifold` is True, only deviations that satisfy the linearized constraints count.
        """
        return self.basis.shape[1]

    @property
    def complete(self) -> bool:
        """True if all directions are controllable or, for observability, observable."""
        return self.rank == self.size

    @property
    def felt(self) -> int:
        """Number of directions of state deviations with a gain above the rounding error.
        The gain tells how strongly inputs move the state along a direction or, for observability, how
        strongly a deviation in this direction appears in the outputs.

        The threshold is `ROUNDING` times the largest gain. Each state is scaled by its own motion under the
        inputs or, for observability, by its own effect on the outputs, so that units do not matter. The
        number is below `rank` if the horizon is short for slow motions, or if the rank counts rounding errors
        as motion. Rounding errors of A and B are removed (`without_rounding`), but those of the states of the
        linearization are not.
        """
        L = self.basis @ self.factor
        size, mask = row_sizes(L)
        gains = np.linalg.svd(L[mask] / size[mask, None], compute_uv=False)
        return int(np.count_nonzero(gains > ROUNDING * gains.max(initial=0.0)))

    @property
    def gramian(self) -> np.ndarray:
        """Controllability or observability Gramian (ndx, ndx), in SI units."""
        L = self.basis @ self.factor
        return L @ L.T

    @property
    def shares(self) -> dict[str, float]:
        """Fraction of each state's deviation that lies in uncontrollable directions.
        For observability, it is the fraction in unobservable directions. The values are from 0 to 1.
        """
        Q, N = self._scaled
        totals = np.linalg.norm(Q, axis=1) ** 2
        amounts = np.linalg.norm(Q @ N, axis=1) ** 2
        shares = np.divide(amounts, totals, out=np.zeros_like(amounts), where=totals > SMALL)
        return {n: float(s) for n, s in zip(self.names, shares, strict=True)}

    def combinations(self) -> list[dict[str, float]]:
        """Return combinations of state deviations that are uncontrollable or unobservable.
        Each dict has the coefficients of one combination by name. The combinations are linearly independent.

        Each dict has few names and a largest coefficient of 1, in units of `scales`. For controllability, a
        combination is a weighted sum that no input changes; for observability, a direction that outputs do
        not show.
        """
        Q, N = self._scaled
        if not N.shape[1]:
            return []
        combinations = []
        for row in eliminated((Q @ N).T):
            size = np.abs(row / np.abs(row).max()).round(6)  # equal sizes stay in the order of names
            row = row / row[np.argmax(size)]
            weights = {n: float(v) for n, v in zip(self.names, row, strict=True) if abs(v) > SMALL}
            combinations.append(dict(sorted(weights.items(), key=lambda item: -round(abs(item[1]), 6))))
        return sorted(combinations, key=lambda weights: self.names.index(next(iter(weights))))

    def directions(self) -> list[Direction]:
        """Return all directions of state deviations, the one with the largest gain first.
        The gain tells how strongly inputs move the state along a direction or, for observability, how
        strongly a deviation in this direction appears in the outputs.
        """
        return list(self._directions)

    @cached_property
    def _directions(self) -> list[Direction]:
        Q, _ = self._scaled
        # the observability Gramian acts on dx, the controllability Gramian consists of dx: scales are inverse
        units = self.scales if self.what == "observable" else 1 / self.scales
        L = Q.T @ (units[:, None] * (self.basis @ self.factor))
        U, singular, _ = np.linalg.svd(L, full_matrices=True)
        gains = np.zeros(len(U))
        gains[: len(singular)] = singular
        vectors = Q @ U
        vectors *= np.sign(vectors[np.argmax(np.abs(vectors), axis=0), np.arange(len(U))])
        return [
            Direction(float(g), dict(zip(self.names, map(float, v), strict=True)))
            for g, v in zip(gains, vectors.T, strict=True)
        ]

    def most(self, count: int = 3) -> list[Direction]:
        """Return the `count` directions of state deviations with the largest gains.
        The gain tells how strongly inputs move the state along a direction or, for observability, how
        strongly a deviation in this direction appears in the outputs.
        """
        return self._directions[:count]

    def least(self, count: int = 3) -> list[Direction]:
        """Return the `count` directions of state deviations with the smallest gains.
        The gain tells how strongly inputs move the state along a direction or, for observability, how
        strongly a deviation in this direction appears in the outputs. The smallest gain is first.
        """
        return self._directions[::-1][:count]

    def steer(self, target: Mapping[str, float] | Any) -> Steering:
        """Return the input changes of least energy that move the final state by `target`.

        Only reports on controllability have this method.

        Parameters
        ----------
        target : dict of str to float (0 where not named), or (ndx,)
            Error of the last state, SI units; its component that violates the constraints is dropped.

        Returns
        -------
        Steering
            ``energy`` is the sum of u'Ru over the horizon, inf if the target is unreachable; ``u`` (N, nu) is
            added to the inputs of the trajectory or equilibrium.
        """
        if self.what != "controllable":
            raise ValueError("steer: an observability report has no inputs")
        target = in_order(target, self.names, "target")
        dx = check_array(target, (len(self.names),), "target", self.names)
        energy, u, residual = steer(*self._pair, self.basis.T @ dx)
        return Steering(energy, u @ self._root.T, self.basis @ residual)

    def energy(self, target: Mapping[str, float] | Any) -> float:
        """Return the least energy of input changes that move the final state by `target`.
        The energy is the sum of u'Ru over all steps; `steer` returns these input changes u.
        """
        return self.steer(target).energy

    def ellipse(
        self, first: str, second: str, *, level: float = 1.0, section: bool = False, points: int = 200
    ) -> np.ndarray:
        """Return boundary points (points, 2) of an ellipse in the plane of two states.
        The ellipse contains the state deviations that inputs with an energy up to `level` can produce. For
        observability, it contains the deviations whose outputs have an energy up to `level`.

        The result is in SI units. Other deviations are free, or 0 if `section` is True. Raises ValueError if
        an unobservable direction changes one of the two states.
        """
        return boundary(semi_axes(self, first, second, section) * np.sqrt(level), points)

    def plot(self, first: str, second: str, *, level: float = 1.0, ax: Any = None) -> Any:
        """Plot ellipses of two state deviations for an energy `level`; return the axes.
        The solid ellipse is the projection of the ellipsoid of all state deviations to the plane of these
        two. The dashed ellipse is the section of this ellipsoid with the plane.
        """
        return plots().plot_gramian(self, first, second, level=level, ax=ax)

    @property
    def _scaled(self) -> tuple[np.ndarray, np.ndarray]:
        """Orthonormal bases of all state deviations, and of the uncontrollable deviations.
        For observability, the second basis is that of the unobservable deviations. Deviations are in units of
        `scales`.

        The columns of the first matrix Q (ndx, r) are the first basis. The columns of the second matrix N (r,
        lost) are the coordinates of the second basis in the first one.
        """
        Q = orth(self.basis / self.scales[:, None], rcond=1e-13)
        if self.what == "controllable":
            inside = Q.T @ (self.basis @ self.subspace.basis / self.scales[:, None])
            return Q, null_space(inside.T, rcond=1e-12) if self.rank else np.eye(self.size)
        directions = Q.T @ (self.basis @ self.subspace.complement / self.scales[:, None])
        return Q, orth(directions, rcond=1e-12) if directions.shape[1] else np.zeros((self.size, 0))

    def __str__(self) -> str:
        space = "the constraint manifold" if self.manifold else "the full state"
        gap = f"counted >= {self.subspace.accepted:.1e}, did not <= {self.subspace.rejected:.1e}"
        verb = "inputs reach" if self.what == "controllable" else "outputs show"
        verdict = f"{'not ' * (not self.complete)}{self.what}"
        lines = [f"{verb} {self.rank} of {self.size} directions of {space}: {verdict} ({gap})"]
        if not self.complete:
            combinations = self.combinations()
            if whole := [n for n, share in self.shares.items() if share < SMALL]:
                lines.append(f"{verb} all of {few(whole, what='states')}")
            heading = (
                "out of reach, whatever the inputs"
                if self.what == "controllable"
                else "never seen in outputs"
            )
            lines.append(f"{heading} (to first order):")
            lines += [f"  {_combination(c)}" for c in combinations[: 2 * SHOWN]]
            if len(combinations) > 2 * SHOWN:
                lines.append(f"  ... ({len(combinations)} in all)")
            if self.lost is not None:
                values = ", ".join(f"{s:.6g}" for s in self.lost[: 2 * SHOWN])
                lines.append(f"their eigenvalues: {values}{', ...' if len(self.lost) > 2 * SHOWN else ''}")
        if (felt := self.felt) < self.rank:
            lines.append(
                f"doubtful: over {self.steps} steps only {felt} of {self.rank} directions stand out from "
                "rounding, the rest may be rounding itself; look at more steps, or longer ones"
            )
        per = "per root of input energy" if self.what == "controllable" else "root of output energy"
        lines.append(f"over {self.steps} steps, {per}:")
        directions, last = self._directions, max(0, min(3, len(self._directions) - 3))
        lines += [f"  {label:5} {d}" for label, d in zip(("most", "", ""), directions, strict=False)]
        lines += [
            f"  {label:5} {d}" for label, d in zip(("least", "", "")[:last], directions[::-1], strict=False)
        ]
        return "\n".join(lines)


def controllability(
    f: OneStepMap,
    about: Any,
    *,
    inputs: str | Sequence[str] | None = None,
    manifold: bool | None = None,
    scales: Any = 1.0,
    R: Any = 1.0,
    steps: int = 100,
    tolerance: float = TOLERANCE,
) -> Structure:
    """Return the controllability of a map about an equilibrium or along a trajectory.

    Parameters
    ----------
    f : OneStepMap
    about : Trajectory, or an equilibrium (x, u), or an object with `x` (nx,) and `u` (nu,)
    inputs : names, optional
        The inputs that may be used; default all.
    manifold : bool, optional
        True for errors on the constraint manifold, False for all errors; default: True if there are
        constraints.
    scales : float, (ndx,) or dict of str to float
        Magnitude of each state's error that counts as 1 in directions and fractions; 1 SI unit where not
        named. The rank does not depend on it.
    R : float, (m,), (m, m) or dict of str to float
        Weights of the inputs used: energy is the sum over the steps of u'Ru.
    steps : int
        Horizon of the Gramian about an equilibrium; a trajectory has its own.
    tolerance : float
        Tolerance of rank decisions, see `staircase`.

    Returns
    -------
    Structure
        Print it.

    Raises
    ------
    ValueError
        Not an equilibrium, wrong shapes or names; a map without inputs.
    """
    if f.nu == 0:
        raise ValueError("controllability: the map has no inputs")
    used = f.input_names
    if inputs is not None:
        used = tuple(
            by_name(dict.fromkeys(as_names(inputs, "inputs")), f.input_names, "inputs", prefix=INPUTS)
        )
    system = linear_system(f, about, manifold, ranks=True)
    N = _horizon(system, steps)
    weight = weight_matrix(R, used, "R", definite=True, prefix=INPUTS)
    columns = np.eye(f.nu)[:, [f.input_names.index(name) for name in used]]
    root = columns @ np.linalg.inv(np.linalg.cholesky(weight)).T
    A, B = _repeat(system.A, N, system), _repeat(system.B @ root, N, system)
    space = _subspace(system, A, B, tolerance)
    return Structure(
        "controllable",
        system.names,
        sizes(scales, system.names, "scales"),
        space,
        system.T[-1],
        gramian_factor(A, B),
        space.eigenvalues_left(system.A[0]) if system.steady else None,
        N,
        system.manifold,
        (A, B),
        root,
        {n: f.unit(n) for n in system.names},
    )


def observability(
    f: OneStepMap,
    about: Any,
    outputs: Any,
    *,
    manifold: bool | None = None,
    scales: Any = 1.0,
    noise: Any = 1.0,
    steps: int = 100,
    tolerance: float = TOLERANCE,
) -> Structure:
    """Return the observability of a map's initial state from given outputs.

    Parameters
    ----------
    f, about, manifold, scales, tolerance
        As in `controllability`.
    outputs : name, names, or (p, ndx)
        Quantities of the state (``"theta"``, ``"hand:x"``, ``"v.theta"``), or the matrix C.
    noise : float, (p,) or dict of str to float
        Standard deviation of each output; the Gramian is then the Fisher information on the first state.
    steps : int
        Horizon of the Gramian about an equilibrium: the number of samples minus 1.

    Returns
    -------
    Structure

    Raises
    ------
    ValueError
        As `controllability`; a quantity that depends on inputs.
    """
    system = linear_system(f, about, manifold, ranks=True)
    N = _horizon(system, steps)
    C, names = system.output_matrices(outputs)
    C = C / sizes(noise, names, "noise")[:, None]
    A = _repeat(system.A, N, system)
    C = np.tile(C[:1], (N + 1, 1, 1)) if system.steady else C
    back = reversed_pair(A, C)
    space = _subspace(system, *back, tolerance)
    eigenvalues = space.eigenvalues_left(system.A[0].T) if system.steady else None
    return Structure(
        "observable",
        system.names,
        sizes(scales, system.names, "scales"),
        space,
        system.T[0],
        gramian_factor(*back),
        eigenvalues,
        N,
        system.manifold,
        back,
        np.eye(len(names)),
        {n: f.unit(n) for n in system.names},
    )


def _horizon(system: LinearSystem, steps: int) -> int:
    return as_count(steps, "steps") if system.steady else len(system.A)


def _repeat(M: np.ndarray, N: int, system: LinearSystem) -> np.ndarray:
    return np.broadcast_to(M, (N, *M.shape[1:])) if system.steady else M


def _subspace(system: LinearSystem, A: Any, B: Any, tolerance: float) -> Subspace:
    # the last pair: the first one of an observability analysis only starts the recursion
    return staircase(A[-1], B[-1], tolerance) if system.steady else reached(A, B, tolerance)


def _combination(weights: Mapping[str, float]) -> str:
    """Return a linear combination of state deviations as text, with its largest terms.
    `weights` are its coefficients by the names of the deviations.
    """
    ordered = sorted(((n, w) for n, w in weights.items() if abs(w) > 1e-3), key=lambda item: -abs(item[1]))
    text = " ".join(f"{w:+.3g} {n}" for n, w in ordered[:SHOWN])
    return text + (f" ... ({len(ordered)} terms)" if len(ordered) > SHOWN else "")
