"""The browser viewer without a browser: what its server would tell one, and the pages that it writes."""

import base64
import builtins
import re
import socket
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import vioc
from vioc import (
    Contact,
    Gravity,
    Kinematics,
    LinearSpring,
    Mass,
    StringConstraint,
    System,
    coincident,
    free,
    read_urdf_text,
    rx,
    tx,
    tz,
)
from vioc.cables import SheaveString, cable, round_section
from vioc.cli import main

# inside: the server of the viewer is spoken to without a browser
from vioc.dynamics.formats.robot import RobotGeometry
from vioc.errors import ModelError
from vioc.viz import view
from vioc.viz.scene import scene_at, scene_of
from vioc.viz.viewer.player import Viewer, nearest

viser = pytest.importorskip("viser", reason='viser is not installed: pip install "vioc[viewer]"')

# where another process has a port, viser leaves the socket that it tried it with to the collector
pytestmark = pytest.mark.filterwarnings(
    "ignore:Exception ignored in. <socket.socket:pytest.PytestUnraisableExceptionWarning"
)


@pytest.fixture(scope="module")
def run():
    f = vioc.MidpointVI(vioc.models.load("cart_pole"), 0.02)
    return f.rollout(f.initial_state({"theta": 0.3}), steps=50)


def told(viewer):
    """What a browser that connects now is told: properties of nodes and of controls, by name or label."""
    recorder = viewer.server.get_scene_serializer()
    return state(decoded(recorder.serialize())[1])


def decoded(data):
    """Length (s) and messages [(time, message)] of a recording, arrays in place."""
    import msgspec
    import zstandard

    raw = zstandard.ZstdDecompressor().decompress(
        data[8:], max_output_size=int.from_bytes(data[:8], "little")
    )
    size = int.from_bytes(raw[:8], "little")
    content = msgspec.msgpack.decode(raw[8 : 8 + size])
    return content["durationSeconds"], content["messages"]


def page(path):
    data = re.search(r'__VISER_EMBED_DATA__="([^"]*)"', path.read_text())[1]
    return decoded(base64.b64decode(data))


def state(messages):
    nodes = {}
    for _, message in messages:
        name = message.get("name")
        if name:
            node = nodes.setdefault(name, {})
            node.update({k: v for k, v in message.items() if k in ("position", "wxyz", "visible")})
            node.update(message.get("props") or {}, **(message.get("updates") or {}))
            if "props" in message:
                node["type"] = message["type"]
    return nodes


def pick(nodes, part):
    (found,) = [node for name, node in nodes.items() if re.search(part, name)]
    return found


# -- moving -----------------------------------------------------------------------------------------


def test_bodies_are_where_the_frames_are(run):
    scene = scene_of(run)
    with view(run, play=False) as viewer:
        for i in (0, 17, 50):
            viewer.go(run.t[i])
            nodes = told(viewer)
            cart, pole = (pick(nodes, f"/{name}-[0-9]+$") for name in ("cart", "pole"))
            np.testing.assert_allclose(cart.get("position", np.zeros(3)), scene.track("cart")[i], atol=1e-12)
            half = run["theta"][i] / 2
            turned = np.array([np.cos(half), 0, np.sin(half), 0])
            assert abs(np.dot(pole["wxyz"], turned)) == pytest.approx(1, abs=1e-12)


def test_the_clock_plays_at_the_speed_and_stops():
    f = vioc.MidpointVI(vioc.models.load("pendulum"), 0.05)
    with view(f.rollout(f.state(), steps=400), speed=4.0) as viewer:
        start = time.monotonic()
        while viewer.time < 1.0 and time.monotonic() - start < 10:
            time.sleep(0.02)
        passed = time.monotonic() - start
        viewer.pause()
        assert not viewer.playing
        time.sleep(0.1)
        stood = viewer.time
        assert 0.9 < stood < 4 * passed + 1.0
        time.sleep(0.2)
        assert viewer.time == stood
        assert viewer._slider.value == pytest.approx(stood, abs=0.1)


def test_it_starts_again_at_the_end(run):
    with view(run, play=False) as viewer:
        viewer.go(99.0)
        assert viewer.time == run.t[-1]
        viewer.play()
        assert viewer.playing and viewer.time < run.t[-1]
        with pytest.raises(ValueError, match="speed"):
            viewer.speed = 0.0


@pytest.mark.parametrize(("speed", "shown"), [(1.0, "1"), (0.05, "1/20"), (3.0, "3")])
def test_the_page_shows_the_speed_that_was_asked_for(run, speed, shown):
    with view(run, play=False, speed=speed) as viewer:
        assert viewer._speeds.value == shown and shown in viewer._speeds.options
        assert viewer.speed == speed


def test_what_is_followed_stays(run):
    with view(run, play=False, follow="cart") as viewer:
        viewer.go(0.7)
        nodes = told(viewer)
        world, cart = pick(nodes, "^/world$"), pick(nodes, "/cart-[0-9]+$")
        np.testing.assert_allclose(
            np.add(world["position"], cart["position"]), run["cart:x"][0] * np.eye(3)[0], atol=1e-14
        )
    with pytest.raises(ModelError, match="unknown frame 'carts'"):
        view(run, play=False, follow="carts")


def test_strings_springs_and_cables_move():
    section = round_section(0.01, density=1000.0, young=1e6)
    rope = cable("rope", 3, 1.0, section)[tz(0.0, name="load", mass=3.0)]
    system = System(
        Gravity(0, 0, -9.81),
        tx("x", name="cart", mass=1.0)[rope.frame],
        rope.terms,
        tz(1.5, name="wheel"),
        tx(2.0)[tz("z", name="bob", mass=1.0)],
        LinearSpring("load", "bob", 1.0),
        StringConstraint("load", "world", 1.0, name="cord"),
        SheaveString("bob", "cart", 6.0, "wheel", 0.2),
        coincident("load", "bob", "xz"),
    )
    Q = np.random.default_rng(0).uniform(0.1, 0.5, (3, len(system.variables)))
    scene = scene_at(system, Q)
    with Viewer({"run": scene}, port=8200) as viewer:
        viewer.go(2.0)
        nodes = told(viewer)
        sticks = [n for name, n in nodes.items() if "/string-" in name and n["type"] == "CylinderMessage"]
        (cord,) = sticks
        (line,) = [x for x in scene.kind("string") if x.name == "cord"]
        ends = line.points[2]
        np.testing.assert_allclose(cord["position"], ends.mean(axis=0), atol=1e-12)
        assert cord["scale"][2] == pytest.approx(np.linalg.norm(ends[1] - ends[0]))
        pin = pick(nodes, "/pin-")
        np.testing.assert_allclose(pin["position"], scene.track("load")[2], atol=1e-12)
        kinds = {
            re.search(r"/(\w+)-\d+$", n)[1]
            for n, node in nodes.items()
            if node.get("type") == "LineSegmentsMessage"
        }
        assert kinds == {"spring", "cable", "string", "sheave"}


# -- what is drawn ----------------------------------------------------------------------------------


def test_frames_and_names_come_when_asked_for(run):
    with view(run, play=False) as viewer:
        assert not pick(told(viewer), "/name-0$")["visible"]
        viewer.show(names=True)
        label = pick(told(viewer), "/name-0$")
        assert label["visible"] and label["text"] == "cart"
        assert not pick(told(viewer), "/axes-0$")["visible"]
        with pytest.raises(ValueError, match="expected frames, names, inertia, skeleton, got 'name'"):
            viewer.show(name=True)


def test_several_runs_have_colours_and_a_legend(run):
    with view({"reference": run, "open <loop>": run}, play=False) as viewer:
        assert "open &lt;loop&gt;" in viewer.legend() and "reference" in viewer.legend()
        balls = [n for n in told(viewer).values() if n.get("type") == "IcosphereMessage"]
        assert len({tuple(b["color"]) for b in balls}) == 2
        assert {b["opacity"] for b in balls} == {0.5, None}  # the reference is half transparent
        viewer.drawings["reference"].root.visible = False
        assert [n["visible"] for name, n in told(viewer).items() if name.endswith("0-reference")] == [False]


def test_shapes_of_contacts_and_robots():
    system = System(
        Gravity(0, 0, -9.81),
        free("b", frame="box", mass=Mass(1.0, (0.1,) * 3)),
        free("c", frame="pill", mass=Mass(1.0, (0.1,) * 3)),
        Contact.box("box", (0.4, 0.3, 0.2)),
        Contact.capsule("pill", 0.1, 0.5),
    )
    robot = [
        RobotGeometry("box", kind, size, (0.0, 0, 0), tuple(np.eye(3).ravel()), None, (1.0, 0.5, 0.0, 0.5))
        for kind, size in (("cylinder", (0.1, 0.2)), ("sphere", (0.3,)))
    ]
    with view(system, {"b-z": 1.0}, visuals=robot) as viewer:
        nodes = told(viewer)
        boxes = [n for name, n in nodes.items() if "/shape-" in name and n["type"] == "BoxMessage"]
        assert [b["dimensions"] for b in boxes if len(b["dimensions"]) == 3][-1] == pytest.approx(
            [0.4, 0.3, 0.2]
        )
        sphere = [
            n
            for name, n in nodes.items()
            if re.search("shape-[0-9]+$", name) and n["type"] == "IcosphereMessage"
        ]
        assert sphere[0]["color"] == [255, 128, 0] and sphere[0]["opacity"] == 0.5
        assert not pick(nodes, "^/world/floor$")["visible"]  # there is a ground
        assert not any("/mass-" in name for name in nodes)  # the shapes show the bodies


URDF = """<robot name="arm">
  <link name="base"><visual><geometry><box size="0.1 0.1 0.1"/></geometry></visual></link>
  <link name="link">
    <inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>
    <visual><origin xyz="0 0 0.5"/><geometry><mesh filename="{file}" scale="2 1 1"/></geometry></visual>
  </link>
  <joint name="hinge" type="revolute"><parent link="base"/><child link="link"/><axis xyz="0 1 0"/>
    <limit lower="-0.5" upper="2" effort="1" velocity="1"/></joint>
</robot>"""
TETRAHEDRON = "v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1\nf 1 3 2\nf 1 2 4\nf 1 4 3\nf 2 3 4\n"


@pytest.fixture
def urdf(tmp_path):
    pytest.importorskip("urdf_parser_py")
    (tmp_path / "arm" / "meshes").mkdir(parents=True)
    (tmp_path / "arm" / "meshes" / "link.obj").write_text(TETRAHEDRON)
    file = tmp_path / "arm" / "urdf" / "arm.urdf"
    file.parent.mkdir()
    file.write_text(URDF.format(file="package://arm/meshes/link.obj"))
    return file


def test_meshes_of_a_robot_move_with_their_links(urdf):
    model = read_urdf_text(urdf.read_text())
    f = vioc.MidpointVI(model.system, 0.05)
    run = f.rollout(f.initial_state({"hinge": 0.4}), steps=4)
    with view(run, visuals=urdf, play=False) as viewer:
        nodes = told(viewer)
        mesh = pick(nodes, "/link-[0-9]+/shape-[0-9]+$")
        assert mesh["type"] == "GlbMessage" and mesh["scale"] == [2.0, 1.0, 1.0]
        np.testing.assert_allclose(mesh["position"], [0, 0, 0.5], atol=1e-14)
    with view([run, run], visuals=urdf, play=False) as viewer:
        meshes = [n for n in told(viewer).values() if n.get("type") == "MeshMessage"]
        assert len({tuple(m["color"]) for m in meshes}) == 2  # in the colours of their runs


def test_meshes_that_cannot_be_read(urdf):
    mesh = urdf.parent.parent / "meshes" / "link.obj"
    mesh.write_text("v 0 0 0\n")
    with pytest.warns(UserWarning, match=r"link\.obj: no triangles"):
        view(read_urdf_text(urdf.read_text()), visuals=urdf).close()
    broken = mesh.with_suffix(".glb")
    broken.write_bytes(b"no such thing")
    urdf.write_text(urdf.read_text().replace(".obj", ".glb"))
    with pytest.raises(ValueError, match=r"link\.glb: not a mesh that can be read"):
        view(read_urdf_text(urdf.read_text()), visuals=urdf)
    broken.unlink()
    with pytest.raises(FileNotFoundError, match="package://arm/meshes"):
        view(read_urdf_text(urdf.read_text()), visuals=urdf)


# -- posing -----------------------------------------------------------------------------------------


def test_a_system_is_posed_by_hand(urdf):
    model = read_urdf_text(urdf.read_text())
    with view(model, {"hinge": 0.3}, visuals=urdf) as viewer:
        slider = viewer._sliders["hinge"]
        assert (slider.min, slider.max, slider.value) == (-0.5, 2.0, 0.3)
        assert viewer.pose({"hinge": 1.0})
        turned = pick(told(viewer), "/link-[0-9]+$")["wxyz"]
        np.testing.assert_allclose(turned, [np.cos(0.5), 0, np.sin(0.5), 0], atol=1e-12)
        viewer.play()  # nothing to play
        assert not viewer.playing


def test_constraints_hold_while_posing():
    """A four-bar linkage with links of 1 m, ground 1 m: a parallelogram."""
    system = System(
        rx("a", name="crank")[tz(1.0)[rx("b", name="rod")[tz(1.0, name="end", mass=1.0)]]],
        tx(0.0)[rx("c", name="rocker")[tz(1.0, name="tip", mass=1.0)]],
        tz(0.0, name="mark"),
        coincident("end", "tip", "yz"),
    )
    with view(system, {"a": 0.2, "b": 2.0, "c": 1.3}) as viewer:
        assert viewer.pose({"a": 0.5})
        k, q = Kinematics(system), viewer.q
        assert q[0] == 0.5
        np.testing.assert_allclose(k.position("end", q), k.position("tip", q), atol=1e-10)
        assert viewer._sliders["b"].value == pytest.approx(viewer.q[1], abs=1e-6)


# -- pages ------------------------------------------------------------------------------------------


def is_cart(message):
    return re.search("0-reference/cart-[0-9]+$", message.get("name", "")) is not None


def test_a_page_holds_the_motion(run, tmp_path):
    path = view({"reference": run, "closed loop": run}, html=tmp_path / "run.html", fps=12.5, speed=0.5)
    text = path.read_text()
    assert "closed loop</div>" in text and "<title>cart_pole</title>" in text
    assert not re.search(r'(src|href)="https?://', text)  # nothing is loaded from elsewhere
    seconds, messages = page(path)
    assert seconds == pytest.approx(2.0)  # 1 s at half the speed
    cart = [(t, m["position"]) for t, m in messages if is_cart(m) and "position" in m]
    times, places = zip(*cart, strict=True)
    scene = scene_of(run).track("cart")
    for t, place in zip(times, places, strict=True):
        np.testing.assert_allclose(place, scene[nearest(run.t, t / 2 + 1e-9)], atol=1e-9)
    assert len(times) >= 20
    client = Path(viser.__file__).parent / "client" / "build" / "index.html"
    assert path.stat().st_size < client.stat().st_size + 50_000  # the rest is viser's own page


def test_pages_are_refused_before_anything_is_computed(run, tmp_path):
    with pytest.raises(ValueError, match=r"expected a file \.html"):
        view(run, html=tmp_path / "run.png")
    with pytest.raises(FileNotFoundError, match="no such folder"):
        view(run, html=tmp_path / "none" / "run.html")
    with pytest.raises(ValueError, match="fps > 0"):
        view(run, html=tmp_path / "run.html", fps=0)
    with pytest.raises(ValueError, match="q is for a system"):
        view(run, {"theta": 0.1})


# -- server -----------------------------------------------------------------------------------------


def test_the_server_starts_says_nothing_and_stops(run, capfd):
    viewer = run.view(play=False)
    port = viewer.server.get_port()
    assert viewer.url == f"http://localhost:{port}" and viewer.url in repr(viewer)
    assert viewer.url in viewer._repr_html_()
    with socket.create_connection(("127.0.0.1", port), timeout=5):
        pass
    viewer.close()
    viewer.close()
    with pytest.raises(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        pass
    assert capfd.readouterr().out == ""


def test_without_viser_it_says_what_to_install(run, monkeypatch):
    real = builtins.__import__

    def absent(name, *args, **kwargs):
        if name == "viser":
            raise ImportError("No module named 'viser'")
        return real(name, *args, **kwargs)

    monkeypatch.delitem(sys.modules, "viser", raising=False)
    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(ImportError, match=r'pip install "vioc\[viewer\]"'):
        view(run)


def test_the_command_writes_a_page(run, tmp_path, capsys):
    file = run.save(tmp_path / "run.npz")
    target = tmp_path / "page.html"
    command = ["view", "cart_pole", str(file), f"again={file}", "--html", str(target), "--fps", "5"]
    assert main([*command, "--follow", "cart"]) == 0
    assert f"wrote {target}" in capsys.readouterr().out
    assert "again</div>" in target.read_text()
    assert main(["view", "acrobot", str(file), "--html", str(target)]) == 2
    assert "not a trajectory of acrobot" in capsys.readouterr().err
    assert main(["view", "scissor_lift:2", "--set", "left-1=0.5", "--html", str(target)]) == 0
    assert main(["view", "cart_pole", str(file), str(file), "--html", str(target)]) == 2
    assert "name them LABEL=FILE" in capsys.readouterr().err


def test_the_command_shows_contacts_beside_constraints(tmp_path):
    """Which the integrator of generalized coordinates refuses, and a picture does not need."""
    model = tmp_path / "ball.sexp"
    model.write_text(
        """(SYSTEM (TX "x" (TZ "z" (NAME "ball") (MASS 1.0)))
             (DISTANCE-CONSTRAINT "ball" "world" 1.0)
             (CONTACT "ball" (0 0 1) -2.0))"""
    )
    page_of_it = tmp_path / "ball.html"
    assert main(["view", str(model), "--set", "x=0.6", "--guess", "z=1", "--html", str(page_of_it)]) == 0
    _, messages = page(page_of_it)
    places = [
        m["position"]
        for _, m in messages
        if re.search("/ball-[0-9]+$", m.get("name", "")) and "position" in m
    ]
    np.testing.assert_allclose(places[-1], [0.6, 0, 0.8], atol=1e-9)
