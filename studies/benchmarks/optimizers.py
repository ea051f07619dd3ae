"""Total time of trajectory optimizations, from the guess to the converged trajectory."""

from __future__ import annotations

from collections.abc import Iterator

from studies.benchmarks import ocp_peers, problems
from studies.benchmarks.harness import ABSENT, Bench, Row


def optimizers(bench: Bench) -> Iterator[Row]:
    problem = problems.pendulum_swing()
    result = problem.solve()
    figures = bench.each(lambda backend: problems.pendulum_swing(backend).solve, 1e3)
    yield _noted(
        bench,
        Row(
            "pendulum of [S] VIII-A",
            "ms",
            figures,
            {"virtual": 7.0, "compiled": 1.2},
            note=f"{result.iterations} iterations; reference implementation 302",
        ),
    )
    swings = [("cart-pole swing-up", problems.CART_POLE, {"virtual": 20.0, "compiled": 5.0})]
    if not bench.quick:
        swings.append(("acrobot swing-up", problems.ACROBOT, {"virtual": 90.0, "compiled": 25.0}))
    for name, swing, targets in swings:
        result = swing.problem().solve()
        figures = bench.each(lambda backend, s=swing: s.problem(backend).solve, 1e3)  # type: ignore[misc]
        peers: dict[str, float | str] = {}
        notes = [f"{result.iterations} iterations, cost {result.cost:.5f}"]
        for peer, solver in (("IPOPT", ocp_peers.ipopt), ("Crocoddyl FDDP", ocp_peers.crocoddyl)):
            solve = solver(swing)
            if solve is None:
                peers[peer] = ABSENT
                continue
            answer = solve()
            if not answer.converged:
                peers[peer] = f"not converged in {answer.iterations} iterations"
                continue
            peers[peer] = bench.best(solve, 1e3)
            notes.append(f"{peer} {answer.iterations}, {answer.cost:.5f}")
        yield _noted(bench, Row(name, "ms", figures, targets, peers, "; ".join(notes)))


def _noted(bench: Bench, row: Row) -> Row:
    """The row, after its figures went to the plot."""
    figures = {f"vioc, {name}": value for name, value in row.figures.items()}
    figures |= {name: value for name, value in row.peers.items() if not isinstance(value, str)}
    bench.curves.setdefault("optimizers", {})[row.name] = figures
    return row
