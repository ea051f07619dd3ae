"""Cables of declared parameters: the same maps, and derivatives by their sections."""

import numpy as np
import pytest
from support.mechanisms import G

import vioc
from vioc import P
from vioc.cables import Section, cable, round_section, static_equilibrium, static_sensitivity

# inside: what a cable keeps for a declared number is compared with that number itself
from vioc.dynamics.description.numbers import Parameter

DOWN = vioc.Gravity(0, 0, -G)
VALUES = {"rho": 0.5, "EI": 0.02, "EA": 40.0}
SECTION = Section(P("rho", 0.5), axial=P("EA", 40.0), bending=P("EI", 0.02))
OTHER = {"rho": 0.7, "EI": 0.05, "EA": 30.0}


def system(section: Section, **options) -> vioc.System:
    rope = cable("c", 4, 1.0, section, start="clamped", extensible=True, damping=(0.1, 0.01), **options)
    return vioc.System(rope, DOWN)


def numbers(rho: float, EI: float, EA: float) -> Section:
    return Section(rho, axial=EA, bending=EI)


def test_multiples_of_a_parameter():
    p = np.float64(3.0) * P("k", 2.0) / 4
    assert p == Parameter("k", 2.0, 0.75) and float(p) == 1.5 and eval(repr(p)) == p
    assert p.of(8.0) == 6.0
    with pytest.raises(TypeError):
        P("k", 2.0) * P("k", 2.0)


def test_a_section_of_parameters_is_one_of_numbers():
    """Steps of the map at other values are those of a map built with these values."""
    declared = system(SECTION)
    assert declared.parameters == VALUES
    assert vioc.read_text(vioc.write_text(declared)) == declared
    x = np.random.default_rng(1).normal(scale=0.1, size=16)
    for values in (VALUES, OTHER):
        f = vioc.MidpointVI(declared, 0.01).with_parameters(**values)
        g = vioc.MidpointVI(system(numbers(**values)), 0.01)
        assert f.step(x) == pytest.approx(g.step(x), abs=1e-10)


@pytest.mark.parametrize("kind", [vioc.LinearTimeVI, vioc.MaximalVI])
def test_other_integrators(kind):
    rope = lambda s: cable("c", 4, 1.0, s, start="clamped")  # noqa: E731
    start = {"c-1": 0.3, "c-3": -0.2}
    values = {"rho": 0.7, "EI": 0.05}
    declared = vioc.System(rope(Section(P("rho", 0.5), bending=P("EI", 0.02))), DOWN)
    exact = vioc.System(rope(Section(0.7, bending=0.05)), DOWN)
    runs = []
    for f in (kind(declared, 0.002).with_parameters(**values), kind(exact, 0.002)):
        runs.append(f.rollout(kind(exact, 0.002).initial_state(start), steps=50))
    assert runs[0].x == pytest.approx(runs[1].x, abs=1e-10)


def test_derivatives_by_parameters():
    """Against central differences of maps built anew."""
    f = vioc.MidpointVI(system(SECTION), 0.01)
    x = np.random.default_rng(2).normal(scale=0.1, size=16)
    found = f.linearize(x).P
    for i, name in enumerate(VALUES):
        h = 1e-5 * VALUES[name]
        ends = [
            vioc.MidpointVI(system(numbers(**{**VALUES, name: VALUES[name] + s})), 0.01).step(x)
            for s in (h, -h)
        ]
        assert found[:, i] == pytest.approx((ends[0] - ends[1]) / (2 * h), rel=1e-5, abs=1e-6)


def test_sag_by_stiffness():
    """A cantilever's end and its derivative by E I, against one that is built stiffer."""
    make = lambda EI: vioc.System(  # noqa: E731
        cable("c", 6, 1.0, Section(0.5, bending=EI), along="x", start="clamped"), DOWN
    )
    soft = make(P("EI", 2.0))
    slope = static_sensitivity(static_equilibrium(soft), "EI")["EI"]
    ends = [static_equilibrium(make(2.0 + s)).q for s in (1e-4, -1e-4)]
    assert slope == pytest.approx((ends[0] - ends[1]) / 2e-4, rel=1e-6)
    stiff = static_equilibrium(soft, EI=3.0)
    assert stiff.q == pytest.approx(static_equilibrium(make(3.0)).q, abs=1e-12)


def test_a_material_of_parameters():
    """Torsion adds two multiples of one density; two parameters there are refused."""
    wire = round_section(0.02, density=P("rho", 7800.0), young=P("E", 2e11), shear=P("G", 8e10))
    options = dict(along="x", hinges="yzx", start="clamped")
    declared = vioc.Lagrangian(vioc.System(cable("c", 2, 1.0, wire, **options)))
    exact = round_section(0.02, density=5000.0, young=2e11, shear=8e10)
    other = vioc.Lagrangian(vioc.System(cable("c", 2, 1.0, exact, **options)))
    q = np.linspace(-0.3, 0.4, 6)
    assert declared.mass_matrix(q, rho=5000.0) == pytest.approx(other.mass_matrix(q))
    assert declared.potential_energy(q, E=2e11) == pytest.approx(other.potential_energy(q))
    mixed = Section(P("rho", 1.0), bending=1.0, torsion=1.0, polar=P("polar", 1e-3))
    with pytest.raises(vioc.ModelError, match="multiples of one parameter"):
        cable("c", 2, 1.0, mixed, hinges="yxz")
    vioc.System(cable("c", 2, 1.0, mixed, hinges="yxz", masses="nodes"))
    with pytest.raises(vioc.ModelError, match="diameter: expected a number"):
        round_section(P("d", 0.02), density=1.0)


def test_damping_and_drag_of_parameters():
    """The power that they take, at other values, is that of numbers."""

    def power(values, **parameters):
        rope = cable("c", 3, 1.0, Section(1.0, bending=0.1), damping=values[:2], drag=values[2:])
        f = vioc.MidpointVI(vioc.System(rope), 0.01)
        f = f.with_parameters(**parameters) if parameters else f
        x = f.initial_state({"c-2": 0.4}, {"c-1": 1.0, "c-3": -2.0})
        return f.rollout(x, steps=20).energy[-1]

    declared = (P("alpha", 0.1), P("beta", 0.0), P("along", 0.2), P("across", 0.3))
    values = dict(alpha=0.3, beta=0.02, along=0.1, across=0.5)
    found = power(declared, **values)
    assert found == pytest.approx(power(tuple(values.values())), rel=1e-10)
    with pytest.raises(vioc.ModelError, match="beta times a stiffness"):
        cable("c", 2, 1.0, Section(1.0, bending=P("EI", 0.1)), damping=(0, P("beta", 0.1)))
