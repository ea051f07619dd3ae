"""Linearization of maps about equilibrium points and trajectories.
The package also checks the weights of costs, and computes bases of the state errors that constraints allow.
"""
