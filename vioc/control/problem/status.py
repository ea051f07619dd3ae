"""Status of an optimization, as one word and as a sentence with advice."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from vioc.control.problem.limits import Violation


class Status(str, Enum):
    """Status of an optimization, which is also a string.

    Example: ``best.status == "converged"``.
    """

    CONVERGED = "converged"
    CLOSE = "close"
    ACCEPTABLE = "acceptable"
    MAX_ITERATIONS = "max_iterations"
    MAX_TIME = "max_time"
    LINE_SEARCH = "line_search"
    NO_DESCENT = "no_descent"
    NO_PROGRESS = "no_progress"
    INFEASIBLE = "infeasible"
    OVERDETERMINED = "overdetermined"
    DIVERGING = "diverging"
    NOT_FINITE = "not_finite"
    INTERRUPTED = "interrupted"
    FAILED = "failed"
    LATE = "late"

    __str__ = str.__str__

    @property
    def advice(self) -> str:
        """Advice on what to try; empty if there is none."""
        return ADVICE[self]


ADVICE = {
    Status.CONVERGED: "",
    Status.CLOSE: "",
    Status.ACCEPTABLE: "only to looser tolerances; scale the cost, or start from a better guess",
    Status.MAX_ITERATIONS: "raise max_iterations, give more room or time, start from a better guess, or try "
    "another method",
    Status.MAX_TIME: "raise the solver's time limit, or start from a better guess",
    Status.LINE_SEARCH: (
        "no step along any direction lowers the cost enough: start from another guess, take shorter steps "
        "(dt), loosen the tolerance, or check derivatives of your own (vioc.control.check_derivatives)"
    ),
    Status.NO_DESCENT: (
        "no descent direction could be computed: give every input a weight R > 0, and see whether the "
        "trajectory has grown out of bounds"
    ),
    Status.NO_PROGRESS: (
        "no step of the solver leads on, though constraints are independent there; scale them, loosen the "
        "tolerance, or start from another guess"
    ),
    Status.INFEASIBLE: (
        "searches from this guess end where constraints are not kept; relax those listed, give another "
        "guess, or more time: a free duration=(low, high), or a larger upper limit of a free one"
    ),
    Status.OVERDETERMINED: "more equations than unknowns: leave free an end or an input",
    Status.DIVERGING: "the cost is perhaps not bounded below; bound the unknowns",
    Status.NOT_FINITE: "give a guess inside the domain of cost and constraints, and bounds that keep to it",
    Status.INTERRUPTED: "the best iterate so far is kept; start again from it",
    Status.LATE: "the answer came behind the deadline; shorten the horizon, or compile (backend)",
    Status.FAILED: "see `stats`; print the solver's own log with options={'ipopt.print_level': 5}",
}


def advice_on(status: Status, unsolved: Exception | None) -> str:
    """Return advice on what to try after a search with a given status.

    `unsolved` is the error of trials that were not trajectories.
    """
    if status is Status.LINE_SEARCH and unsolved is not None:
        return f"no step lowers the cost enough, and some trials lead to no trajectory: {unsolved}"
    return status.advice


def verdict(
    status: Status,
    work: str,
    cost: float,
    *advice: str,
    promise: str = "",
    found: Sequence[Violation] = (),
) -> str:
    """Return a sentence on how a search ended, with advice and the worst violations.
    `work` is a text such as "12 iterations". `found` are the violations, the largest first.
    """
    text = f"{status.replace('_', ' ')} after {work} at cost {cost:.10g}{promise}"
    if what := "; ".join(t for t in advice if t):
        text += f": {what}"
    if found:
        worst = "; ".join(str(v) for v in found[:3])
        more = f" and {len(found) - 3} more" if len(found) > 3 else ""
        text += f". Violated: {worst}{more}"
    return text
