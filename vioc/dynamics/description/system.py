"""Class `System`, the immutable and validated description of a mechanism."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np

from vioc.checks import as_value, check_array, near_misses
from vioc.dynamics.description import edits
from vioc.dynamics.description.component import Component, Constraint, Force, Inequality, Kinetic, Potential
from vioc.dynamics.description.frame import Frame, Pose, nest
from vioc.dynamics.description.inertia import ROUNDING, Mass
from vioc.dynamics.description.numbers import Parameter, Variable, check_length
from vioc.errors import ModelError

WORLD = "world"


@dataclass(frozen=True)
class Node:
    """Frame of a system's tree, with the index of its parent frame.

    Attributes
    ----------
    frame : Frame
    parent : int
        Index of the parent node, -1 for the world.
    """

    frame: Frame
    parent: int


class System:
    """Mechanism: a tree of frames with potentials, forces, constraints and contacts.

    Parameters
    ----------
    *components : Frame, Potential, Kinetic, Force, Constraint, Inequality, or iterables of them
        Frames given here are children of the world.
    name : str
        Shown when printed; not part of equality.

    Attributes
    ----------
    frames, potentials, kinetic, forces, constraints, inequalities : tuples
        Components of each kind in the given order.
    nodes : tuple of `Node`
        Every frame, parents before children, depth first.
    dynamic, kinematic, variables : tuples of str
        The configuration q = (dynamic, kinematic), each in the order of the tree; variables of components
        follow those of the frames.
    inputs : tuple of str
    parameters : read-only mapping of str to float
        Declared parameters with their defaults.
    constraint_names : tuple of str
        A constraint without a name is called by its kind and number (``point-constraint-2``).
    inequality_names : tuple of str
        Names of contacts and limits, likewise.

    Raises
    ------
    ModelError
        If a name is unknown or used twice, or a variable drives two transforms.

    Notes
    -----
    Immutable, comparable, hashable and picklable; ``repr`` is the Python notation that builds the system
    again.
    """

    def __init__(self, *components: Frame | Component | Iterable, name: str = "system"):
        parts = list(_flatten(components))
        if not isinstance(name, str):
            raise ModelError(f"a system's name is a string, got {name!r}")
        self.name = check_length(name, "system")
        self.frames = tuple(p for p in parts if isinstance(p, Frame))
        self.potentials = tuple(p for p in parts if isinstance(p, Potential))
        self.kinetic = tuple(p for p in parts if isinstance(p, Kinetic))
        self.forces = tuple(p for p in parts if isinstance(p, Force))
        self.constraints = tuple(p for p in parts if isinstance(p, Constraint))
        self.inequalities = tuple(p for p in parts if isinstance(p, Inequality))
        if not self.frames:
            raise ModelError(f"{name}: a system needs at least one frame")

        self.nodes = tuple(_walk(self.frames))
        self._index = self._index_frames()
        self._collect_variables()
        self._collect_inputs()
        self.parameters = MappingProxyType(self._collect_parameters())
        self._bodies = self._bodies_by_parameter()
        self._holders: dict[str, list[Component]] = {}
        for component in self.components:
            for value in component.numbers():
                if isinstance(value, Parameter) and not isinstance(component, Kinetic):
                    self._holders.setdefault(value.name, []).append(component)
        names = self._named((*self.constraints, *self.inequalities))
        self.constraint_names = names[: len(self.constraints)]
        self.inequality_names = names[len(self.constraints) :]
        self._check_component_names()
        for component in self.components:
            self._check_references(component)
        self._frozen = True

    def __setattr__(self, key: str, value: object) -> None:
        if getattr(self, "_frozen", False):
            raise AttributeError(f"a System is frozen; build a new one instead of setting {key!r}")
        super().__setattr__(key, value)

    def __delattr__(self, key: str) -> None:
        raise AttributeError(f"a System is frozen; {key!r} cannot be deleted")

    # -- access ---------------------------------------------------------------------------------

    @property
    def components(self) -> tuple[Component, ...]:
        """All components of the system: potentials, forces, constraints and others, grouped by kind.

        The kinds are potentials, kinetic terms, forces, constraints, contacts and limits.
        """
        return (*self.potentials, *self.kinetic, *self.forces, *self.constraints, *self.inequalities)

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of the configuration variables in the order of q: first dynamic, then kinematic."""
        return self.dynamic + self.kinematic

    @property
    def angles(self) -> frozenset[str]:
        """Names of the variables that are angles; the others are lengths."""
        transforms = (node.frame.transform for node in self.nodes)
        return frozenset(t.variable.name for t in transforms if t.variable and t.rotational)

    @property
    def frame_names(self) -> tuple[str, ...]:
        return tuple(self._index)

    def frame_index(self, name: str) -> int:
        """Return the index of a frame, given by its name, in `nodes`; -1 for ``"world"``.

        Raises
        ------
        ModelError
            If there is no such frame; similar names are suggested.
        """
        if name == WORLD:
            return -1
        if name not in self._index:
            raise ModelError(f"unknown frame {name!r}; {near_misses(name, self._index)}")
        return self._index[name]

    def variable_index(self, name: str) -> int:
        """Return the index of a configuration variable in q."""
        if name not in self.variables:
            raise ModelError(f"unknown configuration variable {name!r}; {near_misses(name, self.variables)}")
        return self.variables.index(name)

    def with_components(self, *components: Frame | Component | Iterable) -> System:
        """Return a copy of the system with more components."""
        return System(*self.frames, *self.components, *components, name=self.name)

    def attached(self, frame: str, *frames: Frame | Iterable) -> System:
        """Return a copy of the system with more frames attached to a frame, such as a tool.

        ``system.attached("hand", se3((0, 0, 0.1), name="tool", mass=0.5))``
        """
        more = _bare(_walk(tuple(_flatten(frames))))  # type: ignore[arg-type]
        return _rebuild(
            edits.attached(_flat(self), self.frame_index(frame), more), self.components, self.name
        )

    def locked(self, values: Mapping[str, float]) -> System:
        """Return a copy of the system with some variables fixed at constant values, rad or m.

        Components that act on locked variables only (inputs, springs, damping, limits, rotors) are removed.

        Raises
        ------
        ModelError
            For unknown variables; a variable that moves no frame; a component that couples a locked variable
            with another one, as a gear does.
        """
        for name in values:
            self.variable_index(name)
        components = edits.untouched(self.components, set(values), f"{self.name}: locked")
        return _rebuild(edits.locked(_flat(self), values), components, self.name)

    def without(self, *frames: str) -> System:
        """Return a copy of the system without the given frames and their descendants.

        Components that act only on removed frames are removed, as are frames without name and mass whose
        children are all removed.

        Raises
        ------
        ModelError
            For unknown frames; a component that joins a removed frame with one that remains; an empty system.
        """
        nodes, *removed = edits.without(_flat(self), {self.frame_index(name) for name in frames})
        components = edits.untouched(self.components, set().union(*removed), f"{self.name}: without")
        return _rebuild(nodes, components, self.name)

    @cached_property
    def negative(self) -> dict[int, str]:
        """Messages about bodies with a negative moment of inertia, by frame index.
        Only bodies that were read from robot files can have negative moments of inertia.
        """
        messages = {}
        for i, node in enumerate(self.nodes):
            mass = node.frame.mass
            if mass is None or type(mass) is Mass or not (fault := mass.fault({})):
                continue
            moments = np.linalg.eigvalsh(mass.matrix())
            if moments[0] < -ROUNDING * np.abs(moments).max():
                messages[i] = fault[1]
        return messages

    @cached_property
    def non_negative(self) -> frozenset[str]:
        """Names of parameters that are masses or moments of inertia of bodies."""
        masses = (node.frame.mass for node in self.nodes)
        numbers = (v for m in masses if m is not None for v in (m.mass, *m.inertia[:3]))
        return frozenset(v.name for v in numbers if isinstance(v, Parameter))

    def parameter_values(self, given: Mapping[str, float]) -> dict[str, float]:
        """Return the values of all parameters: those `given`, and else the declared ones.

        Raises
        ------
        ModelError
            For unknown names, and for values that a body or a component does not accept.
        """
        if unknown := sorted(set(given) - set(self.parameters)):
            raise ModelError(f"unknown parameters {unknown}; known are {list(self.parameters)}")
        values = {**self.parameters, **{n: as_value(v, f"parameter {n!r}") for n, v in given.items()}}
        check_array(list(values.values()), (len(values),), "parameters", list(values))
        self.check_bodies(values, given)
        self.check_components(values, given)
        return values

    def mass(self, parameters: Mapping[str, float]) -> float:
        """Return the mass of all bodies, kg, for given values of all parameters."""
        masses = (node.frame.mass for node in self.nodes)
        return sum(_number(m.mass, parameters) for m in masses if m)

    def gravity(self, parameters: Mapping[str, float]) -> float:
        """Return the acceleration of gravity, m/s^2, for given values of all parameters; 0 without gravity.
        Accelerations that act on all bodies are added. If one that acts on a single body is larger than their
        sum, the result is the largest of these.
        """
        total, largest = np.zeros(3), 0.0
        for component in self.potentials:
            if component.keyword in ("GRAVITY", "MASS-GRAVITY"):
                pull = np.array([_number(getattr(component, name), parameters) for name in "xyz"])
                total += pull * (component.keyword == "GRAVITY")
                largest = max(largest, float(np.linalg.norm(pull)) * (component.keyword == "MASS-GRAVITY"))
        return max(float(np.linalg.norm(total)), largest)

    def check_bodies(self, values: Mapping[str, Any], changed: Iterable[str]) -> None:
        """Raise `ModelError` if parameter values make a mass or inertia physically impossible.

        Parameters
        ----------
        values : mapping of str to number or array (N,)
            Values of parameters, or N samples of them; the message names the first sample that fails.
        changed : names
            Parameters whose values have not been checked yet.
        """
        bodies = {id(body): (where, body) for name in changed for where, body in self._bodies.get(name, ())}
        for where, body in bodies.values():
            if fault := body.fault(values):
                i, reason = fault
                names = {v.name for v in body.numbers() if isinstance(v, Parameter)} & set(changed)
                sample_values = {n: np.ravel(v)[i % np.size(v)] for n, v in values.items() if n in names}
                text = ", ".join(f"{name} = {value:g}" for name, value in sample_values.items())
                sample = f" (sample {i})" if any(np.ndim(values[name]) for name in names) else ""
                raise ModelError(f"{self.name}: {where}, with {text}{sample}: {reason}")

    def check_components(self, values: Mapping[str, Any], changed: Iterable[str]) -> None:
        """Raise `ModelError` if a component does not accept the given parameter values.

        Arguments are those of `check_bodies`.
        """
        components = {id(c): c for name in changed for c in self._holders.get(name, ())}
        for component in components.values():
            names = sorted({v.name for v in component.numbers() if isinstance(v, Parameter)} & set(changed))
            samples = np.stack(np.broadcast_arrays(*(np.ravel(values[n]) for n in names)), axis=1)
            for sample in np.unique(samples, axis=0).tolist():
                sample_values = dict(zip(names, sample, strict=True))
                if reason := component.fault_of(sample_values):
                    text = ", ".join(f"{name} = {value:g}" for name, value in sample_values.items())
                    i = int(np.argmax((samples == sample).all(axis=1)))
                    where = f" (sample {i})" if any(np.ndim(values[n]) for n in names) else ""
                    raise ModelError(f"{self.name}: with {text}{where}: {reason}")

    def check_masses(self, values: Mapping[str, Any], changed: Iterable[str]) -> None:
        """Raise `ModelError` if no mass moves with a variable, because parameters are exactly zero.

        Arguments are those of `check_bodies`.
        """
        names = [n for n in changed if n in self._bodies]
        if not any((np.ravel(values[n]) == 0).any() for n in names):
            return
        # imported by name, since mass matrices are above descriptions
        masses = importlib.import_module("vioc.dynamics.masses")
        zero = np.stack(np.broadcast_arrays(*(np.ravel(values[n]) == 0 for n in names)), axis=1)
        for i in np.unique(zero, axis=0, return_index=True)[1]:  # what moves depends on which are zero
            masses.check_mass_matrix(self, {n: float(np.ravel(v)[i % np.size(v)]) for n, v in values.items()})

    # -- validation -----------------------------------------------------------------------------

    def _index_frames(self) -> dict[str, int]:
        index: dict[str, int] = {}
        for i, node in enumerate(self.nodes):
            name = node.frame.name
            if name is None:
                continue
            if name in index:
                raise ModelError(
                    f"{self.name}: two frames are named {name!r} "
                    f"({_where(self.nodes, index[name])} and {_where(self.nodes, i)})"
                )
            index[name] = i
        return index

    def _collect_variables(self) -> None:
        owner: dict[str, str] = {}
        variables: list[Variable] = []
        for i, node in enumerate(self.nodes):
            variable = node.frame.transform.variable
            if variable is None:
                continue
            where = f"{_where(self.nodes, i)}"
            if variable.name in owner:
                raise ModelError(
                    f"{self.name}: the variable {variable.name!r} drives two transforms, "
                    f"{owner[variable.name]} and {where}; each variable drives "
                    "one: use two variables and a constraint between them"
                )
            owner[variable.name] = where
            variables.append(variable)
        for component in self.components:
            for variable in component.own_variables():
                if variable.name not in owner:
                    owner[variable.name] = component.label()
                    variables.append(variable)
                elif variable not in variables:
                    kind = "kinematic" if variable.kinematic else "dynamic"
                    raise ModelError(
                        f"{self.name}: {component.label()} takes {variable.name!r} as a {kind} variable, "
                        f"for {owner[variable.name]} it is not"
                    )
        self.dynamic = tuple(v.name for v in variables if not v.kinematic)
        self.kinematic = tuple(v.name for v in variables if v.kinematic)

    def _collect_inputs(self) -> None:
        names: dict[str, None] = {}
        for force in self.forces:
            for name in force.input_names():
                if name in names:
                    raise ModelError(f"{self.name}: two forces take the input {name!r}")
                names[name] = None
        self.inputs = tuple(names)

    def _collect_parameters(self) -> dict[str, float]:
        result: dict[str, float] = {}
        numbers: list = []
        for node in self.nodes:
            numbers += node.frame.transform.numbers()
            numbers += node.frame.mass.numbers() if node.frame.mass else ()
        for component in self.components:
            numbers += component.numbers()
        for value in numbers:
            if not isinstance(value, Parameter):
                continue
            if result.setdefault(value.name, value.value) != value.value:
                raise ModelError(
                    f"{self.name}: the parameter {value.name!r} has two defaults, "
                    f"{result[value.name]} and {value.value}"
                )
        return result

    def _bodies_by_parameter(self) -> dict[str, list[tuple[str, Any]]]:
        """Return, for each parameter, the masses and rotor inertias that depend on it.
        Each of them comes with a label of its frame or component, for messages.
        """
        bodies: dict[str, list[tuple[str, Any]]] = {}
        owners = [(f"frame {_where(self.nodes, i)}", n.frame.mass) for i, n in enumerate(self.nodes)]
        for where, body in [*owners, *((c.label(), c) for c in self.kinetic)]:
            for value in body.numbers() if body else ():
                if isinstance(value, Parameter):
                    bodies.setdefault(value.name, []).append((where, body))
        return bodies

    def _named(self, components: tuple[Component, ...]) -> tuple[str, ...]:
        counts: dict[str, int] = {}
        names: dict[str, None] = {}
        for component in components:
            kind = component.keyword_of()
            counts[kind] = counts.get(kind, 0) + 1
            name = component.name or f"{kind}-{counts[kind]}"
            if name in names:
                raise ModelError(f"{self.name}: two constraints are named {name!r}")
            names[name] = None
        return tuple(names)

    def _check_component_names(self) -> None:
        names: set[str] = set()
        for component in self.components:
            if component.name is not None and component.name in names:
                raise ModelError(f"{self.name}: two components are named {component.name!r}")
            names.add(component.name or "")

    def _check_references(self, component: Component) -> None:
        frames = component.frame_names()
        if len(set(frames)) < len(frames):
            raise ModelError(
                f"{self.name}: {component.label()} needs different frames, got {', '.join(map(repr, frames))}"
            )
        try:
            for name in component.frame_names():
                self.frame_index(name)
            for name in component.variable_names():
                self.variable_index(name)
            component.check(self)
        except ModelError as error:
            raise ModelError(f"{self.name}: {component.label()}: {error}") from None

    # -- value semantics ------------------------------------------------------------------------

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, System):
            return NotImplemented
        return (_flat(self), self.components) == (_flat(other), other.components)

    def __hash__(self) -> int:
        return hash((_flat(self), self.components))

    def __reduce__(self):
        return _rebuild, (_flat(self), self.components, self.name)

    def __repr__(self) -> str:
        body = "".join(f"{p!r},\n" for p in (*self.frames, *self.components))
        indented = "".join(f"    {line}\n" for line in body.splitlines())
        return f"System(\n{indented}    name={self.name!r},\n)"

    def __str__(self) -> str:
        """Return a summary: counts, the tree of frames, and every component."""
        counts = [
            _count(len(self.nodes), "frame"),
            _count(len(self.dynamic), "dynamic variable"),
            _count(len(self.kinematic), "kinematic variable"),
            _count(len(self.inputs), "input"),
            _count(len(self.constraints), "constraint"),
            _count(len(self.inequalities), "contact or limit", "contacts and limits"),
        ]
        lines = [f"{self.name}: {', '.join(c for c in counts if c)}", "world"]
        lines += _tree(self.frames)
        lines += [f"  {component}" for component in self.components]
        if self.parameters:
            lines.append("  parameters: " + ", ".join(f"{n} = {v:g}" for n, v in self.parameters.items()))
        return "\n".join(lines)


def _number(number: Any, parameters: Mapping[str, float]) -> float:
    """Return a number of a description, which may be a parameter."""
    return float(number.of(parameters[number.name]) if isinstance(number, Parameter) else number)


def _count(number: int, one: str, more: str | None = None) -> str:
    """Return a count with its noun, such as "1 frame" or "2 frames", and "" for zero."""
    return f"{number} {one if number == 1 else more or one + 's'}" if number else ""


def _flat(system: System) -> tuple:
    """Return the frames of a system as a flat tuple, without children, for comparison and hash.

    The tuple allows trees of any depth.
    """
    return _bare(system.nodes)


def _bare(nodes: Iterable[Node]) -> tuple:
    return tuple((replace(node.frame, children=()), node.parent) for node in nodes)


def _rebuild(flat: Sequence, components: Sequence, name: str) -> System:
    return System(*nest(flat), *components, name=name)


def _flatten(items: Iterable) -> Iterator[Frame | Component]:
    for item in items:
        if isinstance(item, (Frame, Potential, Kinetic, Force, Constraint, Inequality)):
            yield item
        elif isinstance(item, (list, tuple)):
            yield from _flatten(item)
        else:
            raise ModelError(
                f"a system is made of frames, potentials, forces, constraints and contacts; got {item!r}"
            )


def _walk(frames: tuple[Frame, ...]) -> list[Node]:
    nodes: list[Node] = []
    stack = [(frame, -1) for frame in reversed(frames)]
    while stack:
        frame, parent = stack.pop()
        nodes.append(Node(frame, parent))
        stack += [(child, len(nodes) - 1) for child in reversed(frame.children)]
    return nodes


def _where(nodes: tuple[Node, ...], i: int) -> str:
    """Describe frame number i by its label and those of its ancestors, for messages."""
    path = []
    while i >= 0:
        path.append(nodes[i].frame.label())
        i = nodes[i].parent
    return " in ".join([*path, "world"])


def _tree(frames: tuple[Frame, ...]) -> list[str]:
    """Return the text lines of a printed tree of frames, without recursion."""
    lines: list[str] = []
    waiting = _siblings(frames, "")
    while waiting:
        frame, indent, last = waiting.pop()
        value = frame.transform.value
        shown = repr(value.position if isinstance(value, Pose) else value)
        text = f"{frame.transform.kind} {shown}"
        text += f"  {frame.name!r}" if frame.name else ""
        text += f"  {frame.mass!r}" if frame.mass else ""
        lines.append(f"{indent}{'`- ' if last else '|- '}{text}")
        waiting += _siblings(frame.children, indent + ("   " if last else "|  "))
    return lines


def _siblings(frames: tuple[Frame, ...], indent: str) -> list[tuple[Frame, str, bool]]:
    """Return sibling frames in reverse order, each with its indent and a flag.
    The flag is True for the last of the siblings.
    """
    return [(frame, indent, i == 0) for i, frame in enumerate(reversed(frames))]


def as_system(value: Any) -> System:
    """Return `value` if it is a system; else raise TypeError."""
    if not isinstance(value, System):
        has = "; use its .system" if isinstance(getattr(value, "system", None), System) else ""
        raise TypeError(f"expected a System, got {type(value).__name__}{has}")
    return value
