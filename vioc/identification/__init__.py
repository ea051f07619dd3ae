"""Parameter identification from measured motions.

By shooting (`identify`), and by the linear regressor of a mechanism (`base_parameters`).
Maths: docs/maths/identification.md, whose equations are numbered (ID).
"""

from vioc.identification.design import design
from vioc.identification.identify import identify
from vioc.identification.records import Record
from vioc.identification.regression import base_parameters

__all__ = ["Record", "base_parameters", "design", "identify"]
