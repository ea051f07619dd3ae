"""Equations of a step with contact in generalized coordinates, for the compiled solver."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vioc.dynamics.contact.tape import Tape, in_units

if TYPE_CHECKING:
    from vioc.dynamics.integrators.contact.contact_vi import ContactVI


class FlatTape(Tape):
    """List of instructions that evaluate the equations of a step with contact.
    The compiled solver executes the instructions. They call CasADi functions of the whole mechanism, not of
    single bodies.
    """

    def __init__(self, f: ContactVI):
        self._f = f
        super().__init__()

    def _write(self) -> None:
        f, p = self._f, self._f.pieces
        lengths = dict(carry=f.nx, u=f.nu, t=1, dt=1, theta=len(f.parameters))
        lengths |= dict(
            places=f.touches.polytopes.numbers,
            V=f.nd,
            multipliers=f.nm,
            y=int(p.variables.parts[-1]),
            kappa=2,
            speed=1,
        )
        self.places = {name: self.column(length) for name, length in lengths.items()}
        x, u, t, dt, theta, places, V, lam, y, kappa, speed = self.places.values()
        state, put = [x, u, t, dt, theta, places], self.places.__setitem__
        put("guess", self.call(p.velocity, [x, theta])[0])
        put("extent", self.call(in_units(f.nx, f.lagrangian.natural_sizes[: f.nd]), [x])[0])

        J, Dh0, mu = self.call(p.held, state)
        self.begin("matrix")
        (M,) = self.call(p.matrix, [V, *state])
        self.begin("leave")
        balance, impulse, rates, h, displacements, gaps, slips, slopes = self.call(p.leave, [V, *state, J])
        put("values", displacements)
        put("gaps", gaps)
        self.begin("begin")
        put("fresh", self.call(p.fresh, [gaps, slips, mu, speed, kappa])[0])
        self.begin("rest")
        blocks = self.call(p.rest, [balance, J, Dh0, mu, lam, y, gaps, slips, kappa])
        for name, block in zip(("left", "mismatch", "products", "impulses"), blocks, strict=True):
            put(name, block)
        self.begin("solve")
        system = [M, J, Dh0, mu, slopes, h, blocks[0], y, gaps, slips, kappa, dt]
        for name, block in zip(("dV", "found", "dy"), self.call(p.solve, system), strict=True):
            put(name, block)
        self.begin("work")
        put("work", self.call(p.work, [M, J, Dh0, lam, y, rates, V, balance, *state[:-1]])[0])
        self.begin("after")
        put("after", self.call(p.after, [V, impulse, lam, y, x, u, dt, J, Dh0])[0])
