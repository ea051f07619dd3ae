"""`vioc.control.dmoc` as one writes it by hand: single constraints, short names, results read by name."""

import pickle

import casadi as ca
import numpy as np
import pytest
from matplotlib import pyplot as plt
from support.control_maps import double_integrator
from support.mechanisms import pendulum

import vioc
from vioc import CasadiMap
from vioc.control import Cost, dmoc


def swing(**options):
    f = vioc.MidpointVI(pendulum(), 0.05)
    effort = Cost(f, 0.5 * ca.sumsqr(f.symbols.u))
    ends = {"initial": f.state(), "final": f.state(theta=0.5)}
    return dmoc.solve(f, effort, **{"steps": 20, **ends, **options})


def test_one_constraint_needs_no_list():
    f = double_integrator()
    wall = dmoc.PathConstraint("wall", f.quantity("x"), upper=0.5)
    assert dmoc.Phase(f, 5, constraints=wall).constraints == (wall,)
    assert dmoc.Phase(f, 5, constraints=iter([wall])).constraints == (wall,)
    assert dmoc.Phase(f, 5, constraints=None).constraints == ()
    finer = dmoc.Phase(f, 5, constraints=wall).refined(2)
    assert [c.name for c in finer.constraints] == ["wall"] and finer.bounds is None


@pytest.mark.parametrize("several", [False, True])
def test_what_is_no_constraint(several):
    f = double_integrator()
    for wrong, kind in ((f.quantity("x"), "SX x_0"), ("wall", "str wall"), (3.0, "float 3.0")):
        place = " in entry 0" if several else ""
        message = rf'got {kind}{place}; write PathConstraint\("name", expression, lower=..., upper=...\)'
        with pytest.raises(TypeError, match=message):
            dmoc.Phase(f, 5, constraints=[wrong] if several else wrong)


def test_unknown_options_say_what_was_meant():
    f = double_integrator()
    for wrong, meant in (("max_iter", "max_iterations"), ("constraint", "constraints"), ("tol", "tolerance")):
        with pytest.raises(TypeError, match=f"dmoc.solve: unknown option '{wrong}'; .*'{meant}'"):
            dmoc.solve(f, None, steps=5, **{wrong: 3})


def test_help_lists_the_options():
    words = set(dmoc.solve.__doc__.replace(",", " ").split())
    missing = {*dmoc.Phase.__dataclass_fields__, *dmoc.Problem.solve.__kwdefaults__} - words
    assert missing == {"map"}  # which is f


def test_minimum_time_needs_a_free_duration():
    x, u, dt = ca.SX.sym("x"), ca.SX.sym("u"), ca.SX.sym("dt")
    f = CasadiMap(ca.Function("f", [x, u, ca.SX.sym("t"), dt], [x + dt * u]), 0.1)
    problem = {"steps": 5, "initial": [0.0], "final": [1.0], "bounds": {"u0": 1.0}}
    for given, time in ((None, 0.5), (1.5, 1.5), ((2.0, 2.0), 2.0)):
        with pytest.raises(ValueError, match=rf"which is given, {time:g} s; .*duration=\(low, high\)"):
            dmoc.solve(f, dmoc.minimum_time(f, 3.0), duration=given, **problem)
    assert dmoc.solve(f, dmoc.minimum_time(f), duration=(0.5, 5.0), **problem).duration == pytest.approx(1.0)
    # a motion in a given time, whatever it costs, and other costs of the same kind, are problems
    for cost in (None, Cost(f), Cost(f, 1.0, f.symbols.x), Cost(f, 1.0 + f.symbols.u**2)):
        dmoc.Phase(f, 5, cost, initial=[0.0])


def test_bounds_on_inputs_by_their_own_names():
    short, full = swing(bounds={"torque": 3.0}), swing(bounds={"u.torque": 3.0})
    assert np.abs(short.u).max() == pytest.approx(3.0, abs=1e-6)
    assert short.x == pytest.approx(full.x, abs=1e-9)
    assert short.refine(2).converged
    x, u = ca.SX.sym("x"), ca.SX.sym("u")
    same = CasadiMap(ca.Function("f", [x, u], [x + u]), 0.1, state_names=("a",), input_names=("a",))
    phase = dmoc.Phase(same, 2, bounds={"a": 1.0})  # the state, as quantity("a") is
    assert (phase.state_limits[1] == 1).all() and np.isinf(phase.input_limits[1]).all()
    with pytest.raises(TypeError, match="bounds: expected a dict of limits by name"):
        dmoc.Phase(same, 2, bounds=[1.0])


def test_a_solution_reads_like_its_trajectory(tmp_path):
    best = swing()
    run = best.trajectory
    for each in (best, best.phases[0], pickle.loads(pickle.dumps(best))):
        for name in ("t", "x", "u", "energy"):
            assert np.array_equal(getattr(each, name), getattr(run, name))
        assert np.array_equal(each.trajectory.multipliers, run.multipliers)
        assert np.array_equal(each["v.theta"], run["v.theta"])
    assert best.map is run.map
    with pytest.raises(vioc.ModelError, match="unknown quantity 'thet'; did you mean 'theta'"):
        best["thet"]
    (axes,) = best.plot("theta")
    assert axes.get_lines()[0].get_ydata() == pytest.approx(best["theta"])
    assert vioc.viz.animate(best, tmp_path / "best.gif", fps=2).exists()
    plt.close("all")


def test_several_phases_read_as_one_motion():
    f = double_integrator()
    both = dmoc.Problem([dmoc.Phase(f, 3, initial=[0, 0]), dmoc.Phase(f, 3, final=[1, 0])]).solve()
    assert both.phases[1].x[-1] == pytest.approx([1, 0], abs=1e-6)
    assert both["x"].shape == (7,) and both.u.shape == (6, 1) and both.duration == pytest.approx(0.6)
    assert np.array_equal(pickle.loads(pickle.dumps(both))["x"], both["x"])
    with pytest.raises(ValueError, match=r"has 2 phases; ask one of them: result.phases\[0\]"):
        _ = both.multipliers


def test_unknown_multipliers_name_those_known():
    best = swing(bounds={"torque": 3.0})
    assert best.multipliers["u.torque"].shape == (20,) and best.multipliers.get("u.torq") is None
    for error in (vioc.ModelError, KeyError):  # as every unknown name, and as any dict
        with pytest.raises(error, match="no multiplier 'u.torq': .*; did you mean 'u.torque'") as caught:
            best.multipliers["u.torq"]
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    again = pickle.loads(pickle.dumps(best))
    with pytest.raises(vioc.ModelError):
        again.multipliers["thet"]


def test_unknown_names_are_model_errors():
    f = double_integrator()
    wrong = [
        (lambda: dmoc.Phase(f, 5, bounds={"y": 1.0}), "bounds: unknown name 'y'"),
        (lambda: dmoc.Phase(f, 5, initial={"y": 1.0}), "initial: unknown name 'y'"),
        (lambda: dmoc.Phase(f, 5, rate={"y": 1.0}), "rate: unknown name 'y'"),
        (lambda: dmoc.Phase(f, 5, periodic="y"), "periodic: unknown name 'y'"),
        (lambda: dmoc.Problem([dmoc.Phase(f, 5)] * 2, jumps=[{"y": 0.0}]), "jump into phase 1: .* 'y'"),
        (lambda: dmoc.Problem(dmoc.Phase(f, 5)).with_parameters(y=1.0), "unknown parameter 'y'"),
        (lambda: dmoc.Problem(dmoc.Phase(f, 5)).solve(initial={"y": 0.0}), "initial: unknown name 'y'"),
    ]
    for make, message in wrong:
        with pytest.raises(vioc.ModelError, match=message):
            make()
    with pytest.raises(ValueError, match="initial: 'x' is free at the start of the first phase"):
        dmoc.Problem(dmoc.Phase(f, 5)).solve(initial={"x": 0.0})
    with pytest.raises(ValueError, match="depend on the state only"):
        dmoc.Phase(f, 5, final={"force": 1.0})
