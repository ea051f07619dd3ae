"""Estimation of a mechanism's parameters from measured motions.

`identify` uses shooting, `base_parameters` the linear regressor of a mechanism; `design` optimizes
experiments. Maths: docs/maths/identification.md, whose equations are numbered (ID).
"""

from vioc.identification.design import design
from vioc.identification.identify import identify
from vioc.identification.records import Record
from vioc.identification.regression import base_parameters

__all__ = ["Record", "base_parameters", "design", "identify"]
