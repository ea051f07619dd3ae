"""Cables: chains of segments with the stiffness of a beam, on the same tree as any mechanism.

`section` says what a cable is made of, `cable` builds the chain, `shapes` gives curves and their
configurations, `statics` equilibria, `modes` natural frequencies. Maths: docs/maths/cables.md.
"""
