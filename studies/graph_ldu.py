"""Linear systems of graphs with cycles ([M] Fig. 9 b-d): block LDU against dense and sparse solvers.

A node is a block of six rows, as a rigid body has. Matrices are random and not symmetric, with the same
numbers for all solvers; times are those of factorizing and solving for one right-hand side from the array
that each solver takes, in processor time, the best of some repetitions, on one BLAS thread. How much
faster than dense depends on the processor's BLAS: the bound is the published one.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from itertools import product

import numpy as np

from studies.block_ldu import BlockLDU
from studies.harness import Claim, Report, Study, at_least, at_most, count_ticks
from vioc.compile.cores import one_thread_each

BLOCK = 6
OURS, NUMPY, DENSE, SUPERLU, CASADI = (
    "block LDU, compiled",
    "block LDU in numpy",
    "numpy dense",
    "scipy SuperLU",
    "CasADi qr",
)
Edges = list[tuple[int, int]]


def lattice(*shape: int) -> Edges:
    """Nodes of a grid with edges along its axes."""
    nodes = {place: i for i, place in enumerate(product(*map(range, shape)))}
    steps = np.eye(len(shape), dtype=int)
    ends = [(p, tuple(map(int, np.add(p, s)))) for p in nodes for s in steps]
    return [(nodes[a], nodes[b]) for a, b in ends if b in nodes]


def ladder(rungs: int) -> Edges:
    """Cycles of four nodes, neighbours sharing two."""
    return lattice(rungs, 2)


def net(width: int) -> Edges:
    """A square of width^2 nodes."""
    return lattice(width, width)


def crystal(width: int) -> Edges:
    """A cube of width^3 nodes."""
    return lattice(width, width, width)


GRAPHS: dict[str, tuple[Callable[[int], Edges], Callable[[int], int], tuple[int, ...], float | None]] = {
    "ladder": (ladder, lambda w: 2 * w, (2, 5, 10, 20, 40, 70, 100), 100),
    "net": (net, lambda w: w * w, (2, 3, 4, 6, 8, 11, 14), None),
    "crystal": (crystal, lambda w: w**3, (2, 3, 4, 5, 6), None),
}
SOURCES = {"ladder": "[M] Fig. 9 b", "net": "[M] Fig. 9 c", "crystal": "[M] Fig. 9 d"}
PUBLISHED = "often more than two orders of magnitude"


def claims() -> dict[str, Claim]:
    result = {"error": Claim("largest difference from the dense solution, all graphs", at_most(1e-10))}
    for name, (_, count, widths, least) in GRAPHS.items():
        n, source = count(widths[-1]), SOURCES[name]
        result[f"{name}_dense"] = Claim(
            f"{name}, {n} nodes: dense time over ours",
            None if least is None else at_least(least),
            published=PUBLISHED,
            source=source,
        )
        result[f"{name}_superlu"] = Claim(f"{name}, {n} nodes: SuperLU's time over ours")
        result[f"{name}_casadi"] = Claim(f"{name}, {n} nodes: CasADi qr's time over ours", full_only=True)
        result[f"{name}_time"] = Claim(f"{name}, {n} nodes: ours", unit="us")
    result["growth"] = Claim("ladder: exponent of our time in the number of nodes, 40 to 200")
    return result


STUDY = Study(__file__, "block LDU on ladder, net and crystal graphs", **claims())


def best(call: Callable[[], object], budget: float) -> float:
    """The shortest of at least three calls, s."""
    times: list[float] = []
    while len(times) < 3 or sum(times) < budget:
        before = time.process_time()
        call()
        times.append(time.process_time() - before)
    return min(times)


def measure(edges: Edges, nodes: int, quick: bool) -> tuple[dict[str, float], float]:
    """Times of the solvers, s, and the largest difference from the dense solution."""
    import casadi as ca
    import scipy.sparse
    import scipy.sparse.linalg

    random = np.random.default_rng(nodes)
    ldu = BlockLDU([BLOCK] * nodes, edges)
    n = BLOCK * nodes
    F = np.zeros((n, n))
    for i, j in [*edges, *[e[::-1] for e in edges], *[(k, k) for k in range(nodes)]]:
        rows, columns = (slice(BLOCK * k, BLOCK * k + BLOCK) for k in (i, j))
        F[rows, columns] = random.normal(size=(BLOCK, BLOCK)) + (i == j) * 20 * np.eye(BLOCK)
    b = random.normal(size=n)
    values, sparse = ldu.pack(F), scipy.sparse.csc_matrix(F)
    plain = BlockLDU([BLOCK] * nodes, edges, ldu.structure.order, backend="numpy")
    solvers: dict[str, Callable[[], np.ndarray]] = {
        OURS: lambda: ldu.factorize(values).solve(b),
        NUMPY: lambda: plain.factorize(values).solve(b),
        DENSE: lambda: np.linalg.solve(F, b),
        SUPERLU: lambda: scipy.sparse.linalg.splu(sparse).solve(b),
    }
    if not quick and n <= 1300:
        A = ca.DM(scipy.sparse.csc_matrix(F))
        linsol = ca.Linsol("linsol", "qr", A.sparsity())
        solvers[CASADI] = lambda: np.asarray(linsol.solve(A, b)).ravel()
    times = {name: best(solve, 0.01 if quick else 0.2) for name, solve in solvers.items()}
    expected = np.linalg.solve(F, b)
    error = max(float(np.abs(solve() - expected).max()) for solve in solvers.values())
    return times, error


@STUDY.body
def run(report: Report) -> None:
    results: dict[str, dict[int, dict[str, float]]] = {}
    worst = 0.0
    with one_thread_each(), ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        for name, (make, count, widths, _) in GRAPHS.items():
            results[name] = {}
            for width in widths[-1:] if report.quick else widths:
                nodes = count(width)
                times, error = pool.submit(measure, make(width), nodes, report.quick).result()
                results[name][nodes] = times
                worst = max(worst, error)
        if report.quick:
            results["ladder"][40] = pool.submit(measure, ladder(20), 40, True).result()[0]
    report.measure(error=worst)
    for name, by_nodes in results.items():
        times = by_nodes[max(by_nodes)]
        figures = {"dense": DENSE, "superlu": SUPERLU, "casadi": CASADI}
        report.measure(
            **{f"{name}_{key}": times[who] / times[OURS] for key, who in figures.items() if who in times},
            **{f"{name}_time": 1e6 * times[OURS]},
        )
    ladders = results["ladder"]
    report.measure(growth=np.log(ladders[200][OURS] / ladders[40][OURS]) / np.log(5))
    draw(report, results)


def draw(report: Report, results: dict[str, dict[int, dict[str, float]]]) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(12, 3.8), sharey=True, layout="constrained")
    for ax, (name, by_nodes) in zip(axes, results.items(), strict=True):
        nodes = sorted(by_nodes)
        for who in (DENSE, NUMPY, SUPERLU, CASADI, OURS):
            shown = [n for n in nodes if who in by_nodes[n]]
            if shown:
                ax.loglog(shown, [1e6 * by_nodes[n][who] for n in shown], "o-", ms=4, label=who)
        count_ticks(ax, nodes)
        ax.set(title=f"{name} ({SOURCES[name]})", xlabel="nodes of 6 rows")
        ax.grid(True, which="major", alpha=0.3)
    axes[0].set_ylabel("factorize and solve (us)")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=5)
    report.save(figure)


if __name__ == "__main__":
    STUDY.main()
