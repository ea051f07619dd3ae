"""Compiled steps with many boxes and hulls, but only the contacts that may close.

If many bodies may all meet, there are thousands of possible contact points, of which a few hundred are near.
The distant contacts then cost nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from vioc.dynamics.contact.compiled_contact import CoreLayout, Kernels, TapeCore
from vioc.dynamics.contact.cones import Variables
from vioc.dynamics.contact.features import AHEAD
from vioc.dynamics.contact.look import LOOKS, Look
from vioc.dynamics.contact.polytopes import PLACES
from vioc.dynamics.contact.rollouts import StepByStep
from vioc.dynamics.integrators.maximal.body_space import STATE, TWIST
from vioc.dynamics.integrators.maximal.body_tape import BodyTape

if TYPE_CHECKING:
    from vioc.dynamics.integrators.maximal.maximal_vi import MaximalVI

KEPT_SETS = 64  # number of sets of contacts whose tapes are kept
ALWAYS = 1e-3  # m, gap that is near at any velocity


@dataclass
class Selection:
    """Compiled solver of steps with a part of the contacts of a map.

    Attributes
    ----------
    active : (m,)
        Indices of the contacts.
    core : TapeCore
    models : list
        Structures of both ends of a step, with their memory images.
    columns : (k,)
        Indices of the selection's multipliers among those of the map.
    """

    active: np.ndarray
    core: TapeCore
    models: list
    columns: np.ndarray


class NearProgram(StepByStep):
    """Object that computes rollouts, with only those contacts that may close.
    The contacts are selected in each step. The object uses compiled solvers.

    Parameters
    ----------
    f : MaximalVI
    layout : CoreLayout
    """

    def __init__(self, f: MaximalVI, layout: CoreLayout):
        super().__init__(f)
        self._layout = layout
        self._kernels = Kernels(f"MaximalVI of {f.system.name}")
        self._functions: list = []
        self._selections: OrderedDict[tuple, Selection] = OrderedDict()
        graph = f.graph
        self._of_pair = np.array([-1 if t.place is None else t.place for t in graph.touches])  # index or -1
        self._first = np.flatnonzero(f.placed)
        counts = [len(t.multipliers) for t in graph.touches]
        self._starts = len(graph.names) + np.concatenate([[0], np.cumsum(counts)]).astype(int)
        self._smooth = np.flatnonzero(~f.placed)
        # largest distance of each contact point from its body's centre of mass, m, for spheres on half-spaces
        value, reaches = graph.terms.model.value, [t.reach for t in graph.touches]
        self._levers = np.array([0.0 if reach is None else value(reach) for reach in reaches])
        self._everywhere = np.array([reach is None for reach in reaches], bool)
        self._holders = np.array([t.bodies[-1] for t in graph.touches])

    # -- nearby contacts ---------------------------------------------------------------------------------

    def _near(self, x: np.ndarray, dt: float, gaps: np.ndarray, look: Look) -> np.ndarray:
        twists = x[STATE * self._f.graph.n :].reshape(-1, TWIST)
        v, w = (np.linalg.norm(a, axis=1)[self._holders] for a in (twists[:, :3], twists[:, 3:]))
        mask = gaps < AHEAD * dt * (v + w * self._levers + 10.0 * dt) + ALWAYS
        mask |= self._everywhere
        mask[self._first] = (np.arange(PLACES) < look.counts[:, None]).ravel()
        return mask

    def _gaps(self, x: np.ndarray) -> np.ndarray:
        """Return the gaps of all contacts in a state x; those between polytopes are infinite."""
        gaps = np.full(len(self._of_pair), np.inf)
        gaps[self._smooth] = self._f.smooth_gaps(x)
        return gaps

    def load(self) -> None:
        """Compile and load the solver of steps without contacts nearby."""
        self._selection(np.zeros(len(self._of_pair), bool))

    def _selection(self, near: np.ndarray) -> Selection:
        active = np.flatnonzero(near)
        key = tuple(active.tolist())
        if key in self._selections:
            self._selections.move_to_end(key)
            return self._selections[key]
        f, graph = self._f, self._f.graph.selected(active)
        departure = BodyTape(graph, f.nu, functions=self._functions)
        tapes = departure, BodyTape(graph, f.nu, departure)
        is_slip = [name.endswith(".slip") for t in graph.touches for name in t.multipliers]
        slips = np.concatenate([np.zeros(len(graph.names), bool), np.array(is_slip, bool)])
        columns = [np.arange(len(graph.names)), *(np.arange(*self._starts[i : i + 2]) for i in active)]

        def whole(leaving: np.ndarray, arriving: np.ndarray) -> np.ndarray:
            return np.where(slips, 0.0, leaving) + arriving

        variables = Variables([t.cone for t in graph.touches])
        core = TapeCore(tapes, variables, replace(self._layout, whole=whole), "", self._kernels)
        selection = Selection(
            active, core, core.models(f.theta, f.barrier), np.concatenate(columns).astype(int)
        )
        self._selections[key] = selection
        if len(self._selections) > KEPT_SETS:
            self._selections.popitem(last=False)
        return selection

    # -- steps --------------------------------------------------------------------------------------------

    def rollout(self, x, U, tracked, t, h, theta, tolerance):
        f, error = self._f, 0.0
        rows: list[tuple] = []
        look: Look | None = None
        gaps = self._gaps(x)
        for k, u in enumerate(U):
            u = self.applied(u, x, tracked, k)
            see = partial(f.graph.seen, dt=float(h[k]))
            look_end = look.end if look and h[k] == h[k - 1] else None
            look = Look(see, f.graph.features.sizes, x, look_end)
            near = self._near(x, float(h[k]), gaps, look)
            for _ in range(LOOKS):
                new = self._selection(near)
                args = u, float(t[k]), float(h[k]), theta
                states, multipliers, errors = self._step(new, look, x, *args, tolerance)
                if not len(states):
                    break
                entered = look.deeper(states[0])
                gaps = self._gaps(states[0])
                missed = ~near & (gaps < 0)
                if not entered and not missed.any():
                    break
                near = near | missed
                near[self._first] = (np.arange(PLACES) < look.counts[:, None]).ravel()
            if not len(states):
                error = float(errors[0])
                break
            x = states[0]
            full = np.zeros(len(f.multiplier_names))
            full[new.columns] = multipliers[0]
            rows.append((x, full, [errors[0]], u))
        return self.rows(rows), error

    def _step(self, new: Selection, look: Look, x, u, t, h, theta, tolerance):
        rows = look.rows.reshape(-1, look.rows.shape[2])
        values = rows[self._of_pair[new.active][self._of_pair[new.active] >= 0]].ravel()
        for end, (_, image) in enumerate(new.models):
            places = new.core.places(end)
            image[places["places"] : places["places"] + len(values)] = values
            image[places["theta"] : places["theta"] + len(theta)] = theta
        states, multipliers, _, errors, _ = new.core.rollout(
            theta,
            x,
            u[None],
            np.array([t]),
            np.array([h]),
            tolerance,
            models=new.models,
        )
        return states, multipliers, errors
