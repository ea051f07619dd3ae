"""Model predictive control of linear and nonlinear models on a receding horizon.
At every sample a controller solves a quadratic program with one stage for each step.
"""
