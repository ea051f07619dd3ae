"""Steps against the branch of their roots, which `studies.branch` follows by a route of its own."""

import numpy as np
import pytest
from support.chain import n_links

import vioc
from studies.branch import Branch
from vioc import MidpointVI, StepError, System


def test_kernels_follow_the_branch_of_fast_steps_by_themselves():
    """A kernel's step is the end of the branch, also where links turn by more than a radian."""
    f, turned = n_links(3, 0.05), 0
    branch, rng = Branch(f), np.random.default_rng(3)
    for _ in range(40):
        x = f.initial_state(rng.uniform(-np.pi, np.pi, 3), rng.uniform(-30, 30, 3))
        x_next, _, error = (np.ravel(a) for a in f.kernel.function(x, [], 0.0, f.dt, f.theta))
        if error <= f.kernel.tolerance:
            assert x_next[:3] == pytest.approx(branch.follow(x, np.zeros(0), f.dt).end, abs=1e-9)
            turned += np.abs(x_next[:3] - x[:3]).max() > 1
    assert turned >= 5


def test_steps_beside_the_pole_of_a_chart_stay_on_their_branch():
    """The determinant touches zero where Euler angles are singular, with one sign on both sides.

    From these states a guess that jumps over the pole finds another root, which nothing at the end of the
    step tells apart; the branch turns the first and the last angle by radians, and does not pass.
    """
    body = vioc.Mass(1.0, (0.05, 0.1, 0.12), (0.1, 0.0, 0.2))
    f = MidpointVI(System(vioc.spherical("b", frame="b", mass=body), vioc.Gravity(0, 0, -9.81)), 0.05)
    for q, v in (
        ([-0.466, 1.626, -1.453], [-2.34, -9.48, -7.2]),
        ([1.087, 1.654, -2.831], [5.47, -5.64, -1.9]),
        ([0.576, 1.515, 2.302], [-3.03, 7.76, -7.01]),
    ):
        x = f.initial_state(q, v)
        expected = Branch(f).follow(x, np.zeros(0), f.dt).end
        assert np.abs(expected - q).max() > 3
        assert f.step(x)[:3] == pytest.approx(expected, abs=1e-8)


def test_a_branch_that_folds_is_not_left_for_another():
    """The branch of five links ends at 0.878 of the step; beside its end there is one that goes on."""
    f = n_links(5, 0.05)
    q = [
        -7.5202638730151561e-01,
        -1.773985142955421,
        -7.6713606122615463e-02,
        1.2354349790714219,
        2.8026055386468283,
    ]
    p = [-3.6750752807113332e02, -2.8122270513635482e02, -1.5479075844249016e02, -4.7472743781485406e01]
    followed = Branch(f).follow(x := np.array([*q, *p, 3.6264021696731781e01]), np.zeros(0), f.dt)
    assert followed.end is None
    with pytest.raises(StepError) as caught:
        f.step(x)
    assert caught.value.length == pytest.approx(followed.share * f.dt, rel=1e-4)


def test_a_step_exists_while_its_whole_matrix_is_regular():
    """The balance of momenta alone becomes singular within a step of this loop; its equations do not."""
    f = MidpointVI(vioc.models.load("closed_chain"), 0.02)
    q = [0.96383574, -1.80530575, -1.04393792, 6.87032199, 0.70007648, -2.59360925, -2.76385589]
    v = [66.5, -18.0, -25.0, 88.0, 36.0, -24.0, -43.0]
    q = f.consistent_configuration(q).q
    x = f.initial_state(q, vioc.project_velocity(f.system, q, v))
    x[f.nq : f.nq + 7] = [
        98.54552137,
        30.44939579,
        -2.45741628,
        12.587127,
        302.484398,
        -54.66455067,
        20.98634317,
    ]
    expected = Branch(f).follow(x, np.zeros(0), f.dt).end
    assert expected is not None
    assert f.step(x)[:7] == pytest.approx(expected, abs=1e-8)
