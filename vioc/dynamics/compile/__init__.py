"""Running CasADi functions: in its virtual machine, or as compiled C kept in an on-disk cache.

`programs` says what can be done with a function (call, map over rows, accumulate steps), `virtual` and
`native` do it, `backend` chooses between them, `compiler` and `cache` turn C into loaded libraries.
See docs/maths/speed.md.
"""

from vioc.dynamics.compile.backend import BACKENDS, Backend
from vioc.dynamics.compile.cache import Cache
from vioc.dynamics.compile.compiler import Compiler, find_compiler
from vioc.dynamics.compile.libraries import load_library
from vioc.dynamics.compile.programs import Program

__all__ = ["BACKENDS", "Backend", "Cache", "Compiler", "Program", "find_compiler", "load_library"]
