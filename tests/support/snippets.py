"""Snippets of a page: each is Python with its flags, and the text block of its output right after it."""

import re

BLOCK = re.compile(
    r"^```python([^\n]*)\n(.*?)^```$(?:\n\n```text([^\n]*)\n(.*?)^```$)?", re.MULTILINE | re.DOTALL
)
