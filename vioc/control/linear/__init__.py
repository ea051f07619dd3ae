"""Linearization of one-step maps x_k+1 = f(x_k, u_k).
A map is linearized about an equilibrium point or along a trajectory. The package also checks the weights of
quadratic costs, and computes bases of the tangent spaces of constraints, and the ranks and natural units of
linear systems.
"""
