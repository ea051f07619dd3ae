"""Running CasADi functions: in its virtual machine, or as compiled C kept in an on-disk cache.

`programs` says what can be done with a function (call, map over rows, accumulate steps), `virtual` and
`native` do it, `backend` chooses between them, `compiler` and `disk_cache` turn C into loaded libraries.
See docs/maths/speed.md.
"""

from vioc.compile.backend import BACKENDS, Backend
from vioc.compile.compiler import Compiler, find_compiler
from vioc.compile.disk_cache import Cache
from vioc.compile.libraries import load_library
from vioc.compile.programs import Program

__all__ = ["BACKENDS", "Backend", "Cache", "Compiler", "Program", "find_compiler", "load_library"]
