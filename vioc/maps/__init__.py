"""One-step maps: the protocol, its base on a kernel, and what runs of them are.

`protocol`, with the names in `named`, is all that `vioc.control` knows of a mechanism, and `suite` checks
that a map keeps it. `kernel` makes rollouts of any step that is a CasADi function, `explicit` its derivatives
too where it is a formula, `casadi_map` takes a user's own, `delay`, `substeps` and `parts` make maps and
steps of others;
`trajectory`, `batch`, `signals` and `derivatives` are what goes in and comes out.
"""
