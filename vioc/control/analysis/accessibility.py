"""Accessibility and small-time local controllability, tested by Lie brackets.

Method of Sussmann (1987); maths: docs/maths/analysis.md. For a mechanism, ``Continuous(system).rates`` or any
CasADi function (x, u) -> dx/dt gives the vector fields.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import permutations
from typing import Any

import casadi as ca
import numpy as np

from vioc.checks import as_count, as_floats, as_share, check_array

Array = np.ndarray
Tree = Any  # an index of a vector field (0 is the drift), or a pair of trees
NEAR, APART = 3, 0.1  # number of generic points near the given point, and their relative distance
HELD, ITERATIONS = 1e-9, 50  # largest residual of constraints, and number of iterations to reduce it
NOTHING = 1e-12  # effect of a typical force, relative to those of others, that is rounding errors
MOST_PERMUTATIONS = 6  # largest number of inputs: 720 terms of a symmetrized bracket


@dataclass(frozen=True)
class Bracket:
    """Lie bracket of a system's drift and input vector fields, evaluated at a point.

    Attributes
    ----------
    name : str
        Such as ``[f0,[f0,g1]]``; f0 is the drift vector field.
    degrees : tuple of int
        Multiplicities of f0, g1, g2, ...
    value : (n,)
    symmetrized : (n,)
        For a bad bracket the sum over the permutations of the inputs; otherwise `value`.
    """

    name: str
    degrees: tuple[int, ...]
    value: np.ndarray = field(repr=False)
    symmetrized: np.ndarray = field(repr=False)

    @property
    def degree(self) -> int:
        return sum(self.degrees)

    @property
    def bad(self) -> bool:
        """True if the bracket may obstruct local controllability ("bad" for Sussmann).
        It contains the drift f0 an odd number of times and every input an even number of times.
        """
        return self.degrees[0] % 2 == 1 and not any(d % 2 for d in self.degrees[1:])


@dataclass(frozen=True)
class Accessibility:
    """Result of tests of a system's accessibility and controllability near a state.

    Attributes
    ----------
    n : int
        Size of the state.
    degree : int
    ranks : tuple of int
        Ranks of the brackets of degree 1, up to 2, ... (f0 counts).
    strong_rank : int
        Rank of all brackets except f0 itself.
    equilibrium : bool
        True if f0 vanishes at the point.
    obstructions : tuple of str
        Bad brackets that brackets of lower degree do not neutralize, for the best theta tried.
    theta : float
        The best theta; f0 has the weight 1/theta.
    brackets : tuple of Bracket
    closed : bool
        True if the longest brackets do not increase the rank at the point and at `NEAR` points nearby.
        Brackets of higher degree then do not increase the rank either (Frobenius).
    held : int
        Number of directions of the state in which constraints prevent motion.
    """

    n: int
    degree: int
    ranks: tuple[int, ...]
    strong_rank: int
    equilibrium: bool
    obstructions: tuple[str, ...]
    theta: float
    brackets: tuple[Bracket, ...] = field(repr=False)
    closed: bool = False
    held: int = 0

    @property
    def size(self) -> int:
        """Dimension of the set of states that satisfy the constraints of the system.
        Without constraints, it is the dimension of the state space.
        """
        return self.n - self.held

    @property
    def accessible(self) -> bool:
        """True if the set of reachable states has an interior.

        False refers only to brackets up to `degree` (see `closed`).
        """
        return self.ranks[-1] == self.size

    @property
    def strongly_accessible(self) -> bool:
        return self.strong_rank == self.size

    @property
    def locally_controllable(self) -> bool | None:
        """True if the system is small-time locally controllable, None if undecided.

        Sussmann's condition is sufficient, not necessary.
        """
        return True if self.equilibrium and self.strongly_accessible and not self.obstructions else None

    def __str__(self) -> str:
        ranks = ", ".join(map(str, self.ranks))
        of = f"{self.size}{' on the constraint manifold' if self.held else ''}"
        lines = [f"rank {self.ranks[-1]} of {of} by brackets up to degree {self.degree} (growth {ranks})"]
        if self.closed:
            count = self.size - self.ranks[-1]
            lines.append(
                f"not accessible, and closed: longer brackets add nothing, {count} "
                f"{'quantity is' if count == 1 else 'quantities are'} conserved whatever the inputs do"
            )
        elif not self.accessible:
            lines.append("not accessible by these; a higher degree may show more")
        elif not self.strongly_accessible:
            lines.append(
                "accessible, but not strongly_accessible (at a fixed time): f0 is needed for the rank"
            )
        elif not self.equilibrium:
            lines.append(
                "strongly_accessible; f0 does not vanish here, so local controllability is no question"
            )
        elif self.locally_controllable:
            lines.append(f"locally_controllable in small time (Sussmann's condition, theta = {self.theta:g})")
        else:
            bad = ", ".join(self.obstructions[:4])
            lines.append(f"strongly_accessible; locally_controllable is undecided: not neutralized are {bad}")
        return "\n".join(lines)


def accessibility(
    rates: Any,
    x: Any,
    *,
    u: Any = None,
    degree: int = 4,
    tolerance: float = 1e-9,
    theta: tuple[float, ...] = (1.0, 1e3),
) -> Accessibility:
    """Test accessibility and small-time local controllability of a system at a state.
    The system is dx/dt = f0(x) + sum of g_i(x) u_i.

    Parameters
    ----------
    rates : casadi.Function or `vioc.Continuous`
        Function (x, u) -> dx/dt, affine in u; further inputs (parameters) are not supported. Or an object
        with such `rates` and with `held`, functions of x that remain 0: a mechanism with its constraints.
    x : (n,), or Equilibrium of a map of the mechanism
        For a mechanism [q, v], not momenta, that satisfies the constraints.
    u : (m,), optional
        Inputs that are part of the drift f0, such as those that hold an equilibrium; default those of the
        equilibrium, else 0.
    degree : int
        Degree of the longest brackets. Their number grows like (m + 1)^degree / degree.
    tolerance : float
        Relative singular values and projections that count as zero, for brackets of norm one. Brackets of a
        mechanism are compared in units of its length, time and inputs, others in the units of `rates`.
    theta : numbers >= 1
        Values of theta to try in Sussmann's weighted degree.

    Returns
    -------
    Accessibility
        Print it.

    Raises
    ------
    ValueError
        Wrong shapes, not affine in u, degree < 1, a point that violates the constraints.

    Notes
    -----
    The brackets are exact expressions; ranks are decided at the given point. If the longest brackets do not
    increase the rank, and the rank is the same at nearby points, the brackets are closed (Frobenius): motions
    stay on a leaf (submanifold) whose dimension is the rank. If brackets of deficient rank are closed,
    quantities are conserved; otherwise `degree` may be too low. Constraints are conserved quantities, too;
    with `held`, all results refer to the manifold where it is 0.
    """
    degree, tolerance = as_count(degree, "degree"), as_share(tolerance, "tolerance")
    constraint = getattr(rates, "held", None)
    if hasattr(rates, "system") and hasattr(x, "multipliers"):
        u = x.u if u is None else u
        x = [*(x[name] for name in rates.system.variables), *np.zeros(len(rates.system.variables))]
    n, fields = _fields(getattr(rates, "rates", rates), u)
    x = check_array(x, (n,), "x")
    constraint = None if constraint is None or not constraint.numel_out(0) else constraint
    sizes, factors = _units(rates, fields, x)
    if constraint is not None and not _holds(_linear(constraint, x, sizes)[0], x / sizes):
        violation = np.abs(np.array(constraint(x))).max()
        raise ValueError(
            f"x: constraints are off by {violation:.2g} there; consistent_configuration finds a start"
        )
    thetas = np.atleast_1d(as_floats(theta, "theta")).ravel().tolist()
    if not thetas or not min(thetas) >= 1 or not max(thetas) < np.inf:
        raise ValueError(f"theta: expected finite numbers >= 1, got {theta}")
    about = x + APART * np.random.default_rng(0).uniform(-1, 1, (NEAR, n)) * (sizes + np.abs(x))
    (x, rank), *near = (_on_manifold(constraint, point, sizes) for point in (x, *about))
    given, *others = _evaluate(fields, n, np.stack([x, *(point for point, _ in near)]), degree)
    brackets, *others = ([_scaled(b, sizes, factors) for b in some] for some in (given, *others))
    ranks, size = _growth(brackets, n, degree, tolerance)
    closed = ranks[-1] < n - rank and all(
        len(growth) > 1 and growth[-2] == growth[-1] == ranks[-1]
        for growth in (ranks, *(_growth(b, n, degree, tolerance)[0] for b in others))
    )
    closed = closed and all(also == rank for _, also in near)
    drift = brackets[0]
    strong = _span(brackets[1:], n, tolerance, size).shape[1]
    candidates = [(_obstructions(brackets, n, t, tolerance, size, n - rank), t) for t in thetas]
    best = min(candidates, key=lambda item: len(item[0]))
    still = bool(np.linalg.norm(drift.value) <= tolerance * max(1.0, size))
    results = (n, degree, ranks, strong, still, best[0], best[1], tuple(given))
    return Accessibility(*results, closed=closed, held=rank)


def _units(rates: Any, fields: list[ca.Function], x: Array) -> tuple[Array, Array]:
    """Return sizes (n,) of the states, and factors (m+1,) of the fields f0, g1, ...

    For a mechanism, the size of an angle is 1 rad, and that of a translation is a length of the mechanism at
    x. The unit of time is the inverse of the largest of a few rates at x, such as that of a fall by this
    length. Each g_i is scaled so that it and its derivative have norm 1, unless it consists of rounding
    errors of a force. Other systems are not scaled.
    """
    if not hasattr(rates, "length"):
        return np.ones(len(x)), np.ones(len(fields))
    n, system = len(x) // 2, rates.system
    length = rates.length(x[:n])
    lengths = np.where([name in system.angles for name in system.variables], 1.0, length)
    rate, slope = (np.array(value) for value in _with_slope(fields[0])(x))
    slope = slope[n:].reshape(n, 2, n) * lengths / lengths[:, None, None]
    per_second = [
        np.sqrt(system.gravity(rates.parameters) / length),
        np.sqrt(np.linalg.norm(rate[n:, 0] / lengths)),
        np.sqrt(np.linalg.norm(slope[:, 0])),
        np.linalg.norm(slope[:, 1]),
    ]
    # slow speeds set no unit of time: rounding errors of a body at rest would count as motion
    time = 1 / max(max(per_second) or 1.0, float(np.linalg.norm(x[n:] / lengths)))
    sizes = np.concatenate([lengths, lengths / time])
    moved = [[np.array(value) for value in _with_slope(g)(x)] for g in fields[1:]]
    norms = np.array([np.linalg.norm(np.hstack([g, slope * sizes]) / sizes[:, None]) for g, slope in moved])
    force = system.mass(rates.parameters) * length / time**2
    typical = np.array([{"N": force, "N m": force * length}.get(unit, 0.0) for unit in rates.input_units])
    effects = typical * time * norms
    rounding = (effects > 0) & (effects <= NOTHING * max(1.0, effects.max(initial=0.0)))
    factors = np.where(rounding, typical * time, 1 / np.where(norms > 0, norms, 1.0))
    return sizes, np.array([time, *factors])


def _with_slope(function: ca.Function) -> ca.Function:
    """Return the function with its values and its derivative by its only argument."""
    x, y = function.name_in(0), function.name_out(0)
    return function.factory(f"{function.name()}_slope", [x], [y, f"jac:{y}:{x}"])


def _scaled(bracket: Bracket, sizes: Array, factors: Array) -> Bracket:
    """Return a bracket in the units of `_units`."""
    scale = np.prod(factors ** np.array(bracket.degrees)) / sizes
    return replace(bracket, value=scale * bracket.value, symmetrized=scale * bracket.symmetrized)


def _linear(h: ca.Function, x: Array, sizes: Array) -> tuple[Array, Array]:
    """Return scaled values (m,) of constraint functions and their Jacobian (m, n).
    The Jacobian is by the states in units of `sizes`. Each row is divided by the norm of its gradient, or by
    the largest norm if its gradient vanishes.
    """
    value, J = (np.array(a) for a in _with_slope(h)(x))
    norms = np.linalg.norm(J * sizes, axis=1)
    norms[norms <= HELD * norms.max()] = norms.max() or 1.0
    return value[:, 0] / norms, J * sizes / norms[:, None]


def _holds(value: Array, x: Array) -> bool:
    """Return True if constraints hold, with their scaled values, at a scaled state.
    The values are those of `_linear`.
    """
    return bool(np.abs(value).max() <= HELD * (1 + np.abs(x).max()))


def _on_manifold(h: ca.Function | None, x: Array, sizes: Array) -> tuple[Array, int]:
    """Return a point near x at which the constraint functions `h` are 0.
    The rank of their Jacobian at this point is returned, too; it is -1 if no point is found.

    At other points, the brackets would include a drift of the constraints.
    """
    if h is None:
        return x, 0
    for _ in range(ITERATIONS):
        value, J = _linear(h, x, sizes)
        if _holds(value, x / sizes):
            return x, int(np.linalg.matrix_rank(J, tol=HELD * max(1.0, float(np.abs(J).max()))))
        x = x - sizes * np.linalg.lstsq(J, value, rcond=HELD)[0]
    return x, -1


def _growth(brackets: list[Bracket], n: int, degree: int, tolerance: float) -> tuple[tuple[int, ...], float]:
    """Return the dimensions of the spans of Lie brackets up to each degree.
    The largest norm of a bracket's value is returned, too.
    """
    size = max((float(np.linalg.norm(b.value)) for b in brackets), default=0.0) or 1.0
    up_to = ([b for b in brackets if b.degree <= d] for d in range(1, degree + 1))
    return tuple(_span(some, n, tolerance, size).shape[1] for some in up_to), size


def _fields(rates: ca.Function, held: Any) -> tuple[int, list[ca.Function]]:
    """Return the number of states, and the drift and input vector fields.
    The drift includes the inputs `held` (m,); None stands for 0.
    """
    if not isinstance(rates, ca.Function) or rates.n_in() != 2 or rates.n_out() != 1:
        raise ValueError(
            "rates: expected a casadi.Function (x, u) -> dx/dt with two inputs and one output, got "
            f"{type(rates).__name__}; of the mechanism of a map f give vioc.Continuous(f.system)"
        )
    n, m = rates.numel_in(0), rates.numel_in(1)
    if rates.numel_out(0) != n:
        raise ValueError(f"rates: dx/dt has {rates.numel_out(0)} entries, x has {n}")
    x, u = ca.SX.sym("x", n), ca.SX.sym("u", m)
    constant = np.zeros(m) if held is None else check_array(held, (m,), "u")
    flow = ca.densify(rates(x, u))
    by_u = ca.jacobian(flow, u)
    if ca.depends_on(ca.vec(by_u), u) and m:
        raise ValueError("rates: dx/dt is not affine in u; make the inputs states and their rates the inputs")
    columns = [ca.substitute(flow, u, ca.DM(constant)), *ca.horzsplit(by_u)]
    return n, [ca.Function(f"field{i}", [x], [ca.densify(c)], {"cse": True}) for i, c in enumerate(columns)]


def hall_basis(count: int, degree: int) -> list[Tree]:
    """Return a Philip Hall basis of the free Lie algebra on `count` generators.

    It is ordered by degree.
    """
    basis: list[Tree] = list(range(count))
    degrees = [1] * count
    place: dict[Tree, int] = {t: i for i, t in enumerate(basis)}
    for d in range(2, degree + 1):
        for i in range(len(basis)):
            for j in range(i + 1, len(basis)):
                if degrees[i] + degrees[j] != d:
                    continue
                a, b = basis[i], basis[j]
                if isinstance(b, tuple) and place[b[0]] > i:
                    continue
                place[(a, b)] = len(place)
        new_trees = [t for t in place if t not in set(basis)]
        basis += new_trees
        degrees += [d] * len(new_trees)
    return basis


def _evaluate(fields: list[ca.Function], n: int, X: np.ndarray, degree: int) -> list[list[Bracket]]:
    """Return the Lie brackets of vector fields up to a degree, at p points X (p, n)."""
    m = len(fields) - 1
    trees = hall_basis(len(fields), degree)
    z = ca.SX.sym("x", n)
    known: dict[Tree, ca.SX] = {}

    def value(tree: Tree) -> ca.SX:
        if tree not in known:
            if isinstance(tree, tuple):
                a, b = value(tree[0]), value(tree[1])
                known[tree] = ca.simplify(ca.jtimes(b, z, a) - ca.jtimes(a, z, b))
            else:
                known[tree] = fields[tree](z)
        return known[tree]

    families: list[list[Tree]] = []
    degrees = [tuple(_count(t, i) for i in range(m + 1)) for t in trees]
    for tree, d in zip(trees, degrees, strict=True):
        bad = d[0] % 2 == 1 and not any(k % 2 for k in d[1:])
        if bad and any(d[1:]) and m > MOST_PERMUTATIONS:
            raise ValueError(
                f"accessibility: {m} inputs have too many permutations; at most {MOST_PERMUTATIONS}"
            )
        orders = permutations(range(1, m + 1)) if bad and any(d[1:]) else [tuple(range(1, m + 1))]
        families.append([_renamed(tree, (0, *order)) for order in orders])
    expressions = [
        ca.horzcat(value(t), sum((value(p) for p in ps), ca.SX.zeros(n)))
        for t, ps in zip(trees, families, strict=True)
    ]
    function = ca.Function("brackets", [z], expressions, {"cse": True})
    brackets: list[list[Bracket]] = []
    for x in X:
        brackets.append([])
        for tree, d, pair in zip(trees, degrees, function.call([ca.DM(x)]), strict=True):
            both = np.array(ca.densify(pair), float).reshape(n, 2)
            if not np.isfinite(both).all():
                raise ValueError(f"the bracket {_name(tree)} is not finite at x = {x}")
            brackets[-1].append(Bracket(_name(tree), d, both[:, 0].copy(), both[:, 1].copy()))
    return brackets


def _obstructions(
    brackets: list[Bracket], n: int, theta: float, tolerance: float, size: float, rank: int
) -> tuple[str, ...]:
    """Return the names of Lie brackets that may obstruct local controllability.
    The criterion is Sussmann's theorem: a bad bracket is an obstruction if its symmetrized value is not in
    the span of the brackets of lower weighted degree.

    Bad brackets that are longer than `brackets` count as obstructions, unless brackets of lower weighted
    degree have full rank.
    """

    def weighted(b: Bracket) -> float:
        return b.degrees[0] / theta + sum(b.degrees[1:])

    names = []
    for b in brackets:
        if not b.bad:
            continue
        lower = [c for c in brackets if weighted(c) < weighted(b) - 1e-12]
        Q = _span(lower, n, tolerance, size)
        rest = b.symmetrized - Q @ (Q.T @ b.symmetrized)
        if np.linalg.norm(rest) > tolerance * max(size, float(np.linalg.norm(b.symmetrized))):
            names.append(b.name)
    longest = max(sum(b.degrees) for b in brackets)
    drifts = longest - 1 + longest % 2  # odd; with one input twice, this is the next bad bracket
    lower = [c for c in brackets if weighted(c) < 2 + drifts / theta - 1e-12]
    if _span(lower, n, tolerance, size).shape[1] < rank:
        names.append(f"bad ones of more than {longest} fields")
    return tuple(names)


def _span(brackets: list[Bracket], n: int, tolerance: float, size: float) -> np.ndarray:
    """Return an orthonormal basis (n, r) of the space that the brackets' values span."""
    vectors = [
        b.value / np.linalg.norm(b.value) for b in brackets if np.linalg.norm(b.value) > tolerance * size
    ]
    if not vectors:
        return np.zeros((n, 0))
    U, singular, _ = np.linalg.svd(np.array(vectors).T, full_matrices=False)
    return U[:, singular > tolerance * singular[0]]


def _count(tree: Tree, i: int) -> int:
    return sum(_count(t, i) for t in tree) if isinstance(tree, tuple) else int(tree == i)


def _renamed(tree: Tree, names: tuple[int, ...]) -> Tree:
    return tuple(_renamed(t, names) for t in tree) if isinstance(tree, tuple) else names[tree]


def _name(tree: Tree) -> str:
    if isinstance(tree, tuple):
        return f"[{_name(tree[0])},{_name(tree[1])}]"
    return f"g{tree}" if tree else "f0"
