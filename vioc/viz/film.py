"""Writer of animations to GIF, HTML and MP4 files.

Objects that do not move are drawn once.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from vioc.progress import Progress

SUFFIXES = (".gif", ".html", ".mp4")
NO_FFMPEG = (
    "{path}: an MP4 is made by ffmpeg, which is not found; install it (Debian, Ubuntu: apt install ffmpeg; "
    "conda: conda install ffmpeg), or write a .gif or .html, which need nothing"
)


def check(path: Path) -> None:
    """Raise an error if no animation can be written to a file of this name.

    Raises
    ------
    ValueError
        If its suffix is not one of `SUFFIXES`.
    FileNotFoundError
        If its folder does not exist, or ffmpeg for an MP4.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise ValueError(f"{path}: an animation is written as {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path}: no such folder {path.parent}; make it first")
    if path.suffix.lower() == ".mp4":
        _ffmpeg(path)


def pace(path: Path, fps: float) -> float:
    """Return the frame rate nearest to `fps` that the file's format allows.

    GIF has delays in units of 1/100 s.
    """
    return 100 / round(100 / min(fps, 50)) if path.suffix.lower() == ".gif" else fps


def write(path: Path, figure: Any, update: Callable[[int], list[Any]], count: int, fps: float) -> None:
    """Write an animation of `count` frames to a file, in the format of its suffix.

    `update(i)` draws frame i of the figure and returns the artists that moved.
    """
    frame = _camera(figure, update)
    kind = path.suffix.lower()
    if kind == ".mp4":
        _write_mp4(path, _counted(map(frame, range(count)), path, count), fps)
        return
    pictures = _counted(_indexed(frame, count), path, count)
    if kind == ".gif":
        first = next(pictures)
        duration = 10 * round(100 / fps)
        first.save(path, save_all=True, append_images=pictures, duration=duration, loop=0, disposal=1)
    else:
        _write_html(path, pictures, figure, fps)


def _counted(pictures: Iterable[Any], path: Path, count: int) -> Iterator[Any]:
    with Progress(path.name, total=count) as progress:
        for picture in pictures:
            yield picture
            progress.advance()


def _camera(figure: Any, update: Callable[[int], list[Any]]) -> Callable[[int], np.ndarray]:
    """Return a function that draws frame i as an image (height, width, 3) of uint8."""
    canvas = figure.canvas
    if not hasattr(canvas, "copy_from_bbox"):  # a canvas made without pyplot, or for PDF
        from matplotlib.backends.backend_agg import FigureCanvasAgg

        canvas = FigureCanvasAgg(canvas.figure)
    for artist in update(0):
        artist.set_animated(True)  # excluded from canvas.draw
    canvas.draw()
    still = canvas.copy_from_bbox(figure.bbox)

    def frame(i: int) -> np.ndarray:
        canvas.restore_region(still)
        for artist in update(i):
            figure.draw_artist(artist)
        return np.asarray(canvas.buffer_rgba())[..., :3].copy()

    return frame


def _indexed(frame: Callable[[int], np.ndarray], count: int) -> Iterator[Any]:
    """Yield the frames of an animation as images with a common palette of 256 colours.

    The palette has the most frequent colours of three frames.
    """
    from PIL import Image

    some = np.stack([frame(i) for i in (0, count // 2, count - 1)])  # a single picture may lack a colour
    colors, times = np.unique(some.reshape(-1, 3) @ [1 << 16, 1 << 8, 1], return_counts=True)
    colors = colors[np.argsort(-times)]
    # Pillow compares the upper six bits of a colour: each such cell has one colour, which is shown
    cells, first = np.unique(colors & 0xFCFCFC, return_index=True)
    usual = np.argsort(first)[:256]
    known, palette = _palette(cells[usual]), _palette(colors[first[usual]]).getpalette()
    for i in range(count):
        indexed = Image.fromarray(frame(i)).quantize(palette=known, dither=Image.Dither.NONE)
        indexed.putpalette(palette)
        yield indexed


def _palette(colors: np.ndarray) -> Any:
    """Make a PIL image whose palette has the colours given as integers 0xRRGGBB."""
    from PIL import Image

    image = Image.new("P", (1, 1))
    image.putpalette(np.stack([colors >> 16, colors >> 8 & 255, colors & 255], axis=1).astype("u1").tobytes())
    return image


def _write_html(path: Path, pictures: Iterable[Any], figure: Any, fps: float) -> None:
    from matplotlib.animation import HTMLWriter

    class Ready:
        """Substitute for a figure, which gives a movie writer an already drawn image."""

        dpi = figure.dpi
        get_size_inches = figure.get_size_inches
        picture: Any

        def savefig(self, stream: Any, **_: Any) -> None:
            self.picture.save(stream, "PNG")

    writer, ready = HTMLWriter(fps=fps, embed_frames=True, embed_limit=200), Ready()
    with writer.saving(ready, path, figure.dpi):
        for ready.picture in pictures:
            writer.grab_frame()


def _ffmpeg(path: Path) -> str:
    import matplotlib

    program = shutil.which(matplotlib.rcParams["animation.ffmpeg_path"])
    if program is None:
        raise FileNotFoundError(NO_FFMPEG.format(path=path))
    return program


def _write_mp4(path: Path, frames: Iterator[np.ndarray], fps: float) -> None:
    """Write an MP4 by ffmpeg, in its default codec and a common pixel format."""
    first = next(frames)
    height, width = first.shape[:2]
    command = [_ffmpeg(path), "-y", "-loglevel", "error", "-f", "rawvideo", "-pix_fmt", "rgb24"]
    command += ["-s", f"{width}x{height}", "-r", f"{fps:g}", "-i", "-", "-pix_fmt", "yuv420p"]
    command += ["-vf", "pad=ceil(iw/2)*2:ceil(ih/2)*2:color=white", "-movflags", "+faststart"]
    maker = subprocess.Popen([*command, str(path.absolute())], stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    assert maker.stdin is not None
    try:
        maker.stdin.write(first.tobytes())
        for frame in frames:
            maker.stdin.write(frame.tobytes())
    except BrokenPipeError:  # ffmpeg's message follows below
        pass
    except BaseException:
        maker.kill()
        maker.communicate()
        raise
    _, remarks = maker.communicate()
    if maker.returncode != 0:
        raise OSError(f"{path}: ffmpeg failed: {remarks.decode(errors='replace').strip()}")
