"""One-step maps: the protocol, its base on a kernel, and what runs of them are.

`protocol` is all that `vioc.control` knows of a mechanism, `kernel` makes rollouts of any step that is a
CasADi function, `casadi_map` takes a user's own; `trajectory`, `batch` and `signals` are what goes in and
comes out.
"""
