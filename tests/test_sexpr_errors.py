"""Every error of the model text: what it says, and the line and column that it points at."""

import pickle
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.strategies import systems

from vioc import read, read_text, write_text
from vioc.errors import ReadError

# The text with <<< before the offending place, which is cut out, and a pattern for the message.
ERRORS = [
    # brackets and strings
    ("<<<", "empty text"),
    ("; nothing\n  <<<", "empty text"),
    ("<<<)", r"expected \(SYSTEM ...\), got \)"),
    ("<<<SYSTEM", r"expected \(SYSTEM ...\), got SYSTEM"),
    ('<<<"SYSTEM"', r'expected \(SYSTEM ...\), got "SYSTEM"'),
    ("<<<(SYSTEM (TX 1)", "this bracket is never closed$"),
    ("(SYSTEM\n  (TX 1 (TY 2)\n  <<<(TZ 1", "never closed, nor are the 2 around it"),
    ("(SYSTEM (TX 1))<<<)", r"expected the end of the text after the system, got \)"),
    ("(SYSTEM (TX 1))\n\n<<<(SYSTEM (TX 1))", "end of the text"),
    ('(SYSTEM (TX 1)) <<<"x"', "end of the text"),
    ('(SYSTEM\n (TX <<<"theta)\n)', "no closing quote"),
    ('(SYSTEM (TX <<<"a\\")', "no closing quote"),
    ('(SYSTEM (TX "a<<<\\n"))', r"unknown escape \\n in a string"),
    ("(SYSTEM " + "(TX 1 " * 503 + "<<<(", "nested deeper than 504"),
    # keywords
    ("(<<<SYSTM (TX 1))", "unknown keyword SYSTM; did you mean SYSTEM"),
    ("<<<((SYSTEM (TX 1)))", r"begins with a keyword, got \(\(...\) ...\)"),
    ("<<<()", r"begins with a keyword, got \(\)"),
    ("(SYSTEM (<<<GRAVTY 0 0 -9.81) (TX 1))", "unknown keyword GRAVTY; did you mean GRAVITY"),
    ("(SYSTEM (<<<zzzzzzz 1) (TX 1))", "unknown keyword zzzzzzz; known are TX, TY.*POINT-CONSTRAINT"),
    ('(SYSTEM (<<<HELICAL "q" 0.1) (TX 1))', "unknown keyword HELICAL; did you mean TWIST"),
    ('(SYSTEM (<<<DISTANCE "a" "b" 1) (TX 1))', "unknown keyword DISTANCE; did you mean DISTANCE-CONSTRAINT"),
    ("(SYSTEM (TX 1) <<<TX)", "begins with a keyword, got TX"),
    ('(SYSTEM (TX 1) <<<("TX" 1))', r"begins with a keyword, got \(\"TX\" ...\)"),
    ("(SYSTEM (TX 1 (<<<NAM 3)))", "unknown keyword NAM; did you mean NAME"),
    ("(SYSTEM (TX 1 <<<(GRAVITY 0 0 1)))", "GRAVITY belongs directly in SYSTEM"),
    ("(SYSTEM (<<<MASS 1))", "unknown keyword MASS"),
    # frames
    ("(SYSTEM (<<<TX))", "TX: expected a parameter, got nothing"),
    ("(SYSTEM (TX 1 <<<TY))", "TY: expected a parameter, got nothing"),
    ("(SYSTEM (TX 1 <<<2))", r"expected a transform \(TX, .*\), an option or a child frame, got 2"),
    ("(SYSTEM (TX 1 <<<TW 2))", "expected a transform .* got TW"),
    ('(SYSTEM (TX 1 <<<"a"))', 'begins with a keyword, got "a"'),
    ("(SYSTEM (TX <<<theta))", r'TX: expected a number, "variable", .*, got theta'),
    ("(SYSTEM (TX <<<()))", r"TX: expected a number, .* got \(\)"),
    ('(SYSTEM (TX <<<(NAME "a")))', r"TX: expected a number, .* got \(NAME ...\)"),
    ("(SYSTEM (TX <<<nan))", "TX: expected a finite number, got nan"),
    ("(SYSTEM (TX <<<-Infinity))", "TX: expected a finite number"),
    ("(SYSTEM (TX <<<1e999))", "TX: expected a finite number, got 1e999"),
    ("(SYSTEM (TX <<<1_0))", "TX: expected a number"),
    ("(SYSTEM (TX <<<٣))", "TX: expected a number"),
    ("(SYSTEM (TX <<<" + "9" * 50 + "x))", r"TX: expected a number, .* got 9{37}\.\.\.$"),
    ('(SYSTEM (TX <<<"a b"))', "configuration variable: a name is a non-empty string"),
    ('(SYSTEM (TX <<<(K "a" "b")))', r'K: expected 1 arguments, got 2; the form is \(K "variable"\)'),
    ("(SYSTEM (TX (D <<<a)))", "D: expected a string in double quotes, got a"),
    ('(SYSTEM (TX <<<(P "a")))', r'P: expected 2 arguments, got 1; the form is \(P "name" value\)'),
    ("(SYSTEM (TX (P <<<a 1)))", "P: name: expected a string in double quotes, got a"),
    ('(SYSTEM (TX (P "a" <<<"1")))', 'P: value: expected a number, got "1"'),
    ('(SYSTEM (TX (P "a" <<<(P "b" 1))))', r"P: value: expected a number, got \(P ...\)"),
    ('(SYSTEM (TX <<<(P "a.b" 1)))', "parameter: a name is"),
    ("(SYSTEM (SE3 <<<1))", r"SE3: expected a pose, got 1; the form is \(SE3 \(\(x y z\)"),
    ("(SYSTEM (SE3 <<<(1 2 3)))", "SE3: expected a pose"),
    ("(SYSTEM (SE3 (<<<(1 2))))", "SE3: position: expected 3 numbers, got 2"),
    ("(SYSTEM (SE3 ((1 2 <<<x))))", "SE3: position: expected a number, got x"),
    ("(SYSTEM (SE3 ((1 2 3) <<<(1 0 0))))", "rotation: expected 9 numbers by rows, got 3"),
    ("(SYSTEM (SE3 <<<((1 2 3) (1 0 0 0 1 0 0 0 -1))))", "rotation: expected a rotation matrix"),
    ('(SYSTEM (SE3 ((1 2 3) (<<<(P "r" 1) 0 0 0 1 0 0 0 1))))', r"SE3: rotation: expected a number, got \(P"),
    ("(SYSTEM (TX 1 <<<(NAME)))", 'NAME: expected 1 arguments, got 0; the form is .NAME "name"'),
    ("(SYSTEM (TX 1 (NAME <<<a)))", "NAME: expected a string in double quotes, got a"),
    ('(SYSTEM (TX 1 (NAME "a")\n <<<(NAME "b")))', r"a second \(NAME ...\)"),
    ('(SYSTEM (TX 1 (RX 1) <<<(NAME "world")))', "'world' is the root"),
    ('(SYSTEM (TX 1 <<<(NAME "")))', "non-empty string"),
    ('(SYSTEM (NAME "a") (TX 1) <<<(NAME "b"))', r"a second \(NAME ...\)"),
    ("(SYSTEM (TX 1 (MASS 1) <<<(MASS 1)))", r"a second \(MASS ...\)"),
    ("(SYSTEM (TX 1 <<<(MASS)))", r"MASS: expected 1, 4 or 7 numbers, got 0; the form is \(MASS m"),
    ("(SYSTEM (TX 1 <<<(MASS 1 2 3)))", "MASS: expected 1, 4 or 7 numbers, got 3"),
    ('(SYSTEM (TX 1 (MASS <<<"1")))', 'MASS: expected a number, got "1"'),
    ("(SYSTEM (TX 1 (MASS 1 <<<(COM 1 2))))", "COM: expected 3 numbers, got 2"),
    ("(SYSTEM (TX 1 (MASS 1 (COM 1 2 3) <<<(COM 1 2 3))))", r"a second \(COM ...\)"),
    ("(SYSTEM\n (TX 1\n  <<<(MASS -1)))", r"mass: expected a number >= 0 \(kg\), got -1"),
    ("(SYSTEM (TX 1 <<<(MASS 1 1 1 3)))", "triangle inequality"),
    ("(SYSTEM (TX 1 <<<(MASS 1 1 1 1 5 0 0)))", "positive semidefinite"),
    # components
    (
        "(SYSTEM (TX 1) <<<(GRAVITY 0 0))",
        r"GRAVITY: expected 3 arguments, got 2; the form is \(GRAVITY x y z \[",
    ),
    ("(SYSTEM (TX 1) (GRAVITY 0 0 1 <<<2 3))", "GRAVITY: expected at most 3 arguments, got 5; the form is"),
    ("(SYSTEM (TX 1) (GRAVITY 0 0 <<<inf))", "GRAVITY: z: expected a finite number, got inf"),
    ('(SYSTEM (TX 1) <<<(LINEAR-SPRING "a"))', "LINEAR-SPRING: expected at least 3 arguments, got 1"),
    ('(SYSTEM (TX 1) (JOINT-DAMPING <<<1 "q"))', "JOINT-DAMPING: variable: expected a string"),
    ('(SYSTEM (TX 1) (JOINT-DAMPING "q" <<<"1"))', 'JOINT-DAMPING: coefficient: expected a number, got "1"'),
    (
        '(SYSTEM (TX "q") <<<(JOINT-DAMPING "q" -1))',
        "joint-damping: coefficient: expected at least 0, got -1",
    ),
    ('(SYSTEM (TX "q") <<<(JOINT-DAMPING "q" 1 (NAME "a b")))', "joint-damping: a name is"),
    ('(SYSTEM (TX "q") (JOINT-FORCE "q" "u" (NAME "a") <<<(NAME "b")))', r"a second \(NAME ...\)"),
    ('(SYSTEM (TX 1) (POINT-CONSTRAINT "a" "b" <<<(1 0)))', "direction: expected 3 numbers, got 2"),
    ('(SYSTEM (TX 1) (POINT-CONSTRAINT "a" "b" <<<1 0))', "direction: expected 3 numbers, got 2"),
    ('(SYSTEM (TX 1) (POINT-CONSTRAINT "a" "b" (1 0 <<<"0")))', "direction: expected a number"),
    ('(SYSTEM (TX 1 (NAME "a")) <<<(POINT-CONSTRAINT "a" "world" 0 0 0))', "got the zero vector"),
    ('(SYSTEM (TX 1) (DISTANCE-CONSTRAINT "a" "b" <<<l))', "length: expected a number, .* got l"),
    ('(SYSTEM (TX 1 (NAME "a"))\n <<<(DISTANCE-CONSTRAINT "a" "world" 0))', "expected a length > 0, got 0"),
    ('(SYSTEM (TX "q" (NAME "a")) <<<(DISTANCE-CONSTRAINT "a" "world" "L"))', "no frame has 'L'"),
    ('(SYSTEM (TX "q") (TX "x")\n <<<(GEAR-CONSTRAINT "q" "x" 0))', "ratio: expected a number other than 0"),
    # the whole
    ("<<<(SYSTEM)", "a system needs at least one frame"),
    (' <<<(SYSTEM (NAME "s") (GRAVITY 0 0 1))', "s: a system needs at least one frame"),
    ('(SYSTEM (TX 1 (NAME "a"))\n (TY 2 <<<(TZ 1 (NAME "a"))) (TX "q" TX "q"))', "two frames are named 'a'"),
    ('(SYSTEM (TX "q" TZ 1 <<<TY "q"))', "the variable 'q' drives two transforms"),
    ('(SYSTEM (TX (P "a" 1)) <<<(TX (P "a" 2)) (TX 1))', "the parameter 'a' has two defaults, 1.0 and 2.0"),
    (
        '(SYSTEM (GRAVITY 0 0 (P "g" 1))\n <<<(GRAVITY 0 0 (P "g" 2)) (TX 1))',
        "the parameter 'g' has two defaults",
    ),
    (
        '(SYSTEM <<<(LINEAR-SPRING "tip" "wrld" 1) (TX 1 (NAME "tip")))',
        "linear-spring: unknown frame 'wrld'",
    ),
    (
        '(SYSTEM <<<(JOINT-FORCE "thet" "u") (TX "theta"))',
        "joint-force: unknown configuration variable 'thet'; did you mean 'theta'",
    ),
    ('(SYSTEM (TX "q") (JOINT-FORCE "q" "u")\n\t<<<(JOINT-FORCE "q" "u"))', "two forces take the input 'u'"),
    (
        """(SYSTEM (JOINT-DAMPING "l" 1) <<<(JOINT-DAMPING "m" 1)
           (TX "q" (NAME "a")) (DISTANCE-CONSTRAINT "a" "world" (K "l")))""",
        "unknown configuration variable 'm'",
    ),
    (
        """(SYSTEM (TX "q" (NAME "a")) (POINT-CONSTRAINT "a" "world" 1 0 0 (NAME "c"))
           <<<(POINT-CONSTRAINT "a" "world" 0 1 0 (NAME "c")))""",
        "two constraints are named 'c'",
    ),
]


@pytest.mark.parametrize(("marked", "message"), ERRORS, ids=[re.sub(r"\s+", " ", e[0])[-60:] for e in ERRORS])
def test_errors_point_at_the_place(marked, message):
    before, _, after = marked.partition("<<<")
    with pytest.raises(ReadError, match=message) as info:
        read_text(before + after, source="model.sexp")
    error = info.value
    assert (error.line, error.column) == (before.count("\n") + 1, len(before.rpartition("\n")[2]) + 1)
    assert str(error) == f"model.sexp:{error.line}:{error.column}: {error.reason}"
    assert isinstance(error, ValueError)
    assert error.__cause__ is None
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.line, again.column) == (str(error), error.line, error.column)


def test_file_errors(tmp_path):
    path = tmp_path / "a.sexp"
    with pytest.raises(FileNotFoundError):
        read(path)
    path.write_bytes(b'(SYSTEM\n  (TX 1 (NAME "\xe9\xff")))')
    with pytest.raises(ReadError, match="not UTF-8") as info:
        read(path)
    assert (info.value.source, info.value.line, info.value.column) == (str(path), 2, 16)
    path.write_text("(SYSTEM")
    with pytest.raises(ReadError, match=re.escape(str(path))):
        read(path)


@given(st.text('()";\\ \nTX1a', max_size=40), st.booleans())
def test_no_text_crashes_the_reader(text, framed):
    try:
        system = read_text(f"(SYSTEM (TX 1 {text}))" if framed else text)
    except ReadError:
        return
    assert read_text(write_text(system)) == system


@given(systems(max_frames=4, constrained=False, forced=True), st.data())
def test_damaged_texts_are_read_or_refused(system, data):
    text = write_text(system)
    start = data.draw(st.integers(0, len(text)))
    end = min(len(text), start + data.draw(st.integers(0, 8)))
    damaged = text[:start] + data.draw(st.text('()"; TXK1.', max_size=3)) + text[end:]
    try:
        read_text(damaged)
    except ReadError as error:
        assert 1 <= error.line <= damaged.count("\n") + 1
        assert 1 <= error.column <= len(damaged.split("\n")[error.line - 1]) + 1
