"""Evaluation of CasADi functions in CasADi's virtual machine or as compiled C.

Compiled libraries are kept in an on-disk cache. `programs` defines the operations on a function (call, map
over rows, accumulate steps), `virtual` and `native` implement them, `backend` chooses between these,
`compiler` and `disk_cache` make loaded libraries from C, `background` beside the running program. See
docs/maths/speed.md.
"""

from vioc.compile.backend import BACKENDS, Backend
from vioc.compile.compiler import Compiler, find_compiler
from vioc.compile.disk_cache import Cache
from vioc.compile.libraries import load_library
from vioc.compile.programs import Program

__all__ = ["BACKENDS", "Backend", "Cache", "Compiler", "Program", "find_compiler", "load_library"]
