"""The viewer in headless Chromium with software WebGL: what a user sees, and what the controls do.

Where things are is read off the screenshot: the mass at the tip of a pole is the only orange thing.
"""

import io
import os
import shutil
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import vioc
from vioc import Gravity, System, ry, tz
from vioc.viz import view

pytestmark = [pytest.mark.browser, pytest.mark.slow]
pytest.importorskip("viser", reason='viser is not installed: pip install "vioc[viewer]"')
playwright = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed: pip install playwright"
)

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = ("--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--no-sandbox")
WIDTH, HEIGHT = 960, 360
PANEL = 335  # of controls, at the right
WARNING = 200, 300  # of software rendering, at the upper left
AXES = 80  # of the world, at the lower left
PATIENCE = 120_000  # ms: software rendering on a busy machine is slow


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as p:
        found = next(filter(None, map(shutil.which, NAMES)), None)
        if found is None and not Path(p.chromium.executable_path).exists():
            pytest.skip("no Chromium found: apt install chromium, or playwright install chromium")
        made = p.chromium.launch(executable_path=found, args=list(FLAGS))
        yield made
        made.close()


@pytest.fixture
def open_page(browser):
    """Open an address in a small window; errors on the page's console fail the test."""
    opened, errors = [], []

    def go(url):
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        page.set_default_timeout(PATIENCE)
        page.on("console", lambda m: errors.append(m.text) if m.type == "error" else None)
        page.on("pageerror", lambda e: errors.append(str(e)))
        opened.append(page)
        page.goto(url)
        page.wait_for_selector("canvas")
        return page

    yield go
    for page in opened:
        page.close()
    assert not errors


@pytest.fixture(scope="module")
def run():
    """A pole that turns by its weight from the left to the right."""
    f = vioc.MidpointVI(System(Gravity(0, 0, -9.81), ry("a")[tz(1.0, name="tip", mass=1.0)]), 0.01)
    return f.rollout(f.initial_state({"a": -2.5}), steps=100)


def picture(page, name=None):
    """The page as an array (height, width, 3); also in the folder that VIOC_SCREENSHOTS names."""
    data = page.screenshot(timeout=PATIENCE)
    folder = os.environ.get("VIOC_SCREENSHOTS")
    if folder and name:
        Path(folder, f"{name}.png").write_bytes(data)
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB")).astype(int)


def ball(page, name=None):
    """Where the mass is on the page (right, down), pixels; None where it is not seen."""
    shown = picture(page, name)[:, : WIDTH - PANEL]
    shown[: WARNING[0], : WARNING[1]] = 0
    shown[-AXES:, :AXES] = 0
    r, g, b = np.moveaxis(shown, 2, 0)
    rows, columns = np.nonzero((r > 120) & (r > 1.5 * g) & (g > 1.5 * b))  # orange, in light and in shade
    return np.array([columns.mean(), rows.mean()]) if len(rows) > 5 else None


def until(condition, seconds=60):
    """What a condition returns, as soon as it is true."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.1)
    raise AssertionError("timed out")


def projected(viewer, point):
    """Where a client's camera sees a point of the world, from the middle of the page, in picture heights."""
    (client,) = viewer.server.get_clients().values()
    camera = client.camera
    ahead = camera.look_at - camera.position
    ahead = ahead / np.linalg.norm(ahead)
    right = np.cross(ahead, camera.up_direction)
    right = right / np.linalg.norm(right)
    d = point - camera.position
    scale = 1 / (2 * np.tan(camera.fov / 2) * (d @ ahead))
    return np.array([d @ right, -(d @ np.cross(right, ahead))]) * scale


def sees(viewer, page, name=None):
    """Whether the mass is where the camera should see it, to 8 pixels."""
    found = ball(page, name)
    place = HEIGHT * projected(viewer, viewer.drawings["run"].scene.track("tip")[round(viewer.time / 0.01)])
    return found is not None and np.linalg.norm(found - [WIDTH / 2, HEIGHT / 2] - place) < 8


def test_slider_and_bodies_move_each_other(run, open_page):
    with view(run, play=False) as viewer:
        page = open_page(viewer.url)
        until(lambda: viewer.server.get_clients())
        until(lambda: sees(viewer, page, "start"))

        # the slider in the page moves the bodies
        field = page.locator("input[type=text], input[inputmode=decimal]").filter(visible=True).first
        field.fill("0.8")
        field.press("Enter")
        until(lambda: abs(viewer.time - 0.8) < 1e-6)
        until(lambda: sees(viewer, page, "slid"))

        # playing moves the slider in the page
        before = field.input_value()
        page.get_by_role("button", name="Play").click()
        until(lambda: viewer.playing)
        until(lambda: field.input_value() != before)
        page.get_by_role("button", name="Pause").click()
        until(lambda: not viewer.playing)
        until(lambda: abs(float(field.input_value()) - viewer.time) < 0.006)
        until(lambda: sees(viewer, page, "played"))


def test_a_page_plays_without_a_server(run, open_page, tmp_path):
    path = view(run, html=tmp_path / "run.html", fps=20)
    page = open_page(path.as_uri())
    places: list[np.ndarray] = []

    def moved():
        now = ball(page, "page")
        places.extend([now] if now is not None else [])
        return len(places) > 1 and np.linalg.norm(places[-1] - places[0]) > 20

    until(moved)
