"""Maps as operators of learning frameworks, and as environments to learn in. See docs/learning.md.

`jax`, `torch` and `gymnasium` need the packages of these names: import them by name.
"""
