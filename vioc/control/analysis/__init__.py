"""System analysis: controllability, observability, modes, regions of attraction.

Maths: docs/maths/analysis.md.
"""

from vioc.control.analysis.accessibility import Accessibility, accessibility
from vioc.control.analysis.attraction import Attraction, region_of_attraction
from vioc.control.analysis.frequency import FrequencyResponse, frequency_response
from vioc.control.analysis.gramians import (
    controllability_gramian,
    gramian_factor,
    observability_gramian,
    steer,
)
from vioc.control.analysis.lyapunov import LyapunovLevel, lyapunov_level
from vioc.control.analysis.modes import Mode, Modes, floquet, modes
from vioc.control.analysis.structure import Direction, Structure, controllability, observability
from vioc.control.analysis.tube import Tube, verified_level, verified_tube
from vioc.control.linear.rank import (
    Subspace,
    controllability_matrix,
    controllability_rank,
    hautus_margins,
    observability_matrix,
    observability_rank,
    staircase,
    undetectable_modes,
    unstabilizable_modes,
)

__all__ = [
    "Accessibility",
    "Attraction",
    "Direction",
    "FrequencyResponse",
    "LyapunovLevel",
    "Mode",
    "Modes",
    "Structure",
    "Subspace",
    "Tube",
    "accessibility",
    "controllability",
    "controllability_gramian",
    "controllability_matrix",
    "controllability_rank",
    "floquet",
    "frequency_response",
    "gramian_factor",
    "hautus_margins",
    "lyapunov_level",
    "modes",
    "observability",
    "observability_gramian",
    "observability_matrix",
    "observability_rank",
    "region_of_attraction",
    "staircase",
    "steer",
    "undetectable_modes",
    "unstabilizable_modes",
    "verified_level",
    "verified_tube",
]
