"""One-step maps: the protocol (`base`), its engine (`kernel`), and the integrators."""
