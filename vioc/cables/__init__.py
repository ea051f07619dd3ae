"""Cables as chains of segments with the bending stiffness of a beam.

A cable is part of the same tree of frames as any mechanism. `section` defines cross-sections, `cable` builds
the chain, `catenaries` gives curves and their configurations, `statics` equilibria, `oscillations` natural
frequencies. Maths: docs/maths/cables.md.
"""

from vioc.cables.cable import Cable, cable
from vioc.cables.catenaries import catenary
from vioc.cables.oscillations import NormalModes, longest_step, normal_modes
from vioc.cables.section import Section, beam_stiffness, rectangular_section, round_section
from vioc.cables.statics import StaticEquilibrium, static_equilibrium, static_sensitivity
from vioc.dynamics.terms.cables import (
    BendingSpring,
    HingeDamping,
    HingeSpring,
    LineDrag,
    MassDamping,
    SheaveString,
)

__all__ = [
    "BendingSpring",
    "Cable",
    "HingeDamping",
    "HingeSpring",
    "LineDrag",
    "MassDamping",
    "NormalModes",
    "Section",
    "SheaveString",
    "StaticEquilibrium",
    "beam_stiffness",
    "cable",
    "catenary",
    "longest_step",
    "normal_modes",
    "rectangular_section",
    "round_section",
    "static_equilibrium",
    "static_sensitivity",
]
