"""Maps as functions of machine-learning frameworks, and as learning environments.

See docs/learning.md. `jax`, `torch` and `gymnasium` need the packages of these names: import them by name.
"""
