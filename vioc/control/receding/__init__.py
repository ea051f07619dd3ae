"""Receding horizons: linear and nonlinear model-predictive control.

Both solve one quadratic program of stages.
"""
