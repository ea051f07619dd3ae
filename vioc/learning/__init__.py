"""Maps as functions of JAX and PyTorch, and as learning environments of Gymnasium.

See docs/learning.md. `jax`, `torch` and `gymnasium` need the packages of these names: import them by name.
"""
