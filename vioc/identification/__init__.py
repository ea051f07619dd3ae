"""Parameters of a map from measured motions: by shooting, and by the linear regressor of a mechanism.

Maths: docs/maths/identification.md, whose equations have numbers (ID).
"""

from vioc.identification.design import design
from vioc.identification.identify import identify
from vioc.identification.records import Record
from vioc.identification.regression import base_parameters

__all__ = ["Record", "base_parameters", "design", "identify"]
