"""DDP and iLQR: the front end `optimize`, its pass over the stages `backward`, `box_qp` for bounds."""

from vioc.control.ddp.optimize_ddp import optimize_ddp

__all__ = ["optimize_ddp"]
