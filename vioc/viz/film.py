"""Pictures of an animation into a file. What stands still is drawn once, what moves for each picture."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

SUFFIXES = (".gif", ".html")
PATIENCE = 2.0  # s, after which progress is shown


def pace(path: Path, fps: float) -> float:
    """The pictures per second that the file can hold nearest to `fps`: GIF counts time in 1/100 s."""
    return 100 / round(100 / min(fps, 50)) if path.suffix.lower() == ".gif" else fps


def write(path: Path, figure: Any, update: Callable[[int], list[Any]], count: int, fps: float) -> None:
    """Write `count` pictures of a figure with an Agg canvas; `update(i)` returns what moves in the i-th."""
    pictures = _watched(_pictures(figure, update, count), str(path), count)
    if path.suffix.lower() == ".gif":
        first = next(pictures)
        duration = 10 * round(100 / fps)
        first.save(path, save_all=True, append_images=pictures, duration=duration, loop=0, disposal=1)
    else:
        _write_html(path, pictures, figure, fps)


def _pictures(figure: Any, update: Callable[[int], list[Any]], count: int) -> Iterator[Any]:
    """The pictures, all in the colours that three of them use most."""
    from PIL import Image

    canvas = figure.canvas
    for artist in update(0):
        artist.set_animated(True)  # left out of canvas.draw
    canvas.draw()
    still = canvas.copy_from_bbox(figure.bbox)

    def picture(i: int) -> Any:
        canvas.restore_region(still)
        for artist in update(i):
            figure.draw_artist(artist)
        return Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")

    some = np.stack([picture(i) for i in (0, count // 2, count - 1)])  # one alone may hide a colour
    colors, times = np.unique(some.reshape(-1, 3) @ [1 << 16, 1 << 8, 1], return_counts=True)
    colors = colors[np.argsort(-times)]
    # Pillow looks up the upper six bits of a colour: one colour for each is looked up, and itself shown
    cells, first = np.unique(colors & 0xFCFCFC, return_index=True)
    usual = np.argsort(first)[:256]
    known, shown = _palette(cells[usual]), _palette(colors[first[usual]]).getpalette()
    for i in range(count):
        indexed = picture(i).quantize(palette=known, dither=Image.Dither.NONE)
        indexed.putpalette(shown)
        yield indexed


def _palette(colors: np.ndarray) -> Any:
    """An image that holds colours, given as integers 0xRRGGBB."""
    from PIL import Image

    image = Image.new("P", (1, 1))
    image.putpalette(np.stack([colors >> 16, colors >> 8 & 255, colors & 255], axis=1).astype("u1").tobytes())
    return image


def _write_html(path: Path, pictures: Iterable[Any], figure: Any, fps: float) -> None:
    from matplotlib.animation import HTMLWriter

    class Ready:
        """Stands in for a figure where a writer asks for a picture, and has it already."""

        dpi = figure.dpi
        get_size_inches = figure.get_size_inches
        picture: Any

        def savefig(self, stream: Any, **_: Any) -> None:
            self.picture.save(stream, "PNG")

    writer, ready = HTMLWriter(fps=fps, embed_frames=True, embed_limit=200), Ready()
    with writer.saving(ready, path, figure.dpi):
        for ready.picture in pictures:
            writer.grab_frame()


def _watched(pictures: Iterable[Any], name: str, count: int) -> Iterator[Any]:
    """Pass the pictures on; where they take long, say on stderr how many are done and how long it takes.

    On a terminal one line that changes, elsewhere one line when that is known and one at the end.
    """
    terminal = sys.stderr.isatty()
    start, end = ("\r", "") if terminal else ("", "\n")
    begun = told = time.monotonic()
    for done, picture in enumerate(pictures, 1):
        yield picture
        now = time.monotonic()
        waited = now - told > 0.2 if told > begun else now - begun > PATIENCE
        if waited and (terminal or told == begun):
            left = (now - begun) / done * (count - done)
            text = f"{start}{name}: {done} of {count} pictures, {left:.0f} s left  "
            print(text if terminal else text.rstrip(), end=end, file=sys.stderr, flush=True)
            told = now
    if told > begun:
        print(f"{start}{name}: {count} pictures in {time.monotonic() - begun:.1f} s   ", file=sys.stderr)
