"""Feedback control of discrete-time maps x[k+1] = f(x[k], u[k]).

The package has equilibria, observers, closed loops and model predictive control.

Maths: docs/maths/feedback.md; how to: docs/feedback.md.
"""

from vioc.control.feedback.configurations import ConfigurationObserver
from vioc.control.feedback.covariance import Covariance, covariance
from vioc.control.feedback.equilibrium import Equilibrium, equilibrium
from vioc.control.feedback.kalman import Estimate, ExtendedKalmanFilter, KalmanFilter, kalman
from vioc.control.feedback.loop import ClosedLoop, LoopRun
from vioc.control.feedback.measurement import Measurement
from vioc.control.feedback.moving_horizon import MovingHorizon, Window
from vioc.control.feedback.offset_free import OffsetFree, SteadyTarget
from vioc.control.feedback.scheduled import LimitedLaw, ScheduledLaw
from vioc.control.feedback.steering import SteeredCovariance, steer_covariance
from vioc.control.linear.manifold import restrict, tangent_bases, tangent_basis
from vioc.control.receding.linear import LinearMPC, LinearPlan
from vioc.control.receding.nonlinear import NonlinearMPC, Verdict, terminal_set
from vioc.control.regulators.law import Law, StateLaw, as_law
from vioc.control.regulators.tracking import Tracking, track_curve
from vioc.maps.made.delay import DelayedMap
from vioc.maps.made.extended import ExtendedMap

__all__ = [
    "ClosedLoop",
    "ConfigurationObserver",
    "Covariance",
    "DelayedMap",
    "Equilibrium",
    "Estimate",
    "ExtendedKalmanFilter",
    "ExtendedMap",
    "KalmanFilter",
    "Law",
    "LimitedLaw",
    "LinearMPC",
    "LinearPlan",
    "LoopRun",
    "Measurement",
    "MovingHorizon",
    "NonlinearMPC",
    "OffsetFree",
    "ScheduledLaw",
    "StateLaw",
    "SteadyTarget",
    "SteeredCovariance",
    "Tracking",
    "Verdict",
    "Window",
    "as_law",
    "covariance",
    "equilibrium",
    "kalman",
    "restrict",
    "steer_covariance",
    "tangent_bases",
    "tangent_basis",
    "terminal_set",
    "track_curve",
]
