"""Receding horizons: one quadratic program of stages, linear and nonlinear model-predictive control on it."""
