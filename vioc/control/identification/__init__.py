"""Parameters of a map from measured motions: by shooting, and by the linear regressor of a mechanism.

Maths: docs/maths/identification.md, whose equations have numbers (ID).
"""
