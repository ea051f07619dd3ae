"""Identification of parameters by shooting, or by a mechanism's linear regressor.

Maths: docs/maths/identification.md, equations (ID).
"""

from vioc.identification.design import design
from vioc.identification.identify import identify
from vioc.identification.records import Record
from vioc.identification.regression import base_parameters

__all__ = ["Record", "base_parameters", "design", "identify"]
