"""Model predictive control of linear and nonlinear models on a receding horizon.

Both solve a quadratic program with the structure of stages at every sample.
"""
