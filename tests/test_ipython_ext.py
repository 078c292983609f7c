"""The magic in a real IPython shell, and how its line is read."""

from __future__ import annotations

import pytest

import numbaprof
from numbaprof.errors import OptionError
from numbaprof.ipython_ext import MagicOptions, parse_line
from numbaprof.report import ReportOptions

FUNCTION = """
from numba import njit

@njit
def double(x):
    return 2 * x
"""


@pytest.fixture(scope="module")
def shell():
    """Return a shell with the extension loaded."""
    interactiveshell = pytest.importorskip(
        "IPython.core.interactiveshell", reason="IPython is not installed"
    )
    from traitlets.config import Config

    config = Config()
    config.HistoryManager.enabled = False
    shell = interactiveshell.InteractiveShell(config=config)
    shell.run_line_magic("load_ext", "numbaprof")
    shell.run_cell(FUNCTION)
    return shell


@pytest.fixture
def published(shell, monkeypatch):
    """Return the list of bundles that the shell was given to show."""
    bundles = []
    monkeypatch.setattr(
        shell.display_pub, "publish", lambda data, metadata: bundles.append(data)
    )
    return bundles


@pytest.mark.parametrize(
    ("line", "options"),
    [
        ("f(1)", MagicOptions("f(1)")),
        ("-r -q f(-1)", MagicOptions("f(-1)", returns=True, quiet=True)),
        ("-rq x = -y", MagicOptions("x = -y", returns=True, quiet=True)),
        ("-D 'a b.json' f()", MagicOptions("f()", saved="a b.json")),
        ("-T report.txt f()", MagicOptions("f()", written="report.txt")),
        ("-s calls f()", MagicOptions("f()", report=ReportOptions(sort="calls"))),
        ("-s tottime f()", MagicOptions("f()", report=ReportOptions(sort="self"))),
        ("-l 5 f()", MagicOptions("f()", report=ReportOptions(top=5))),
        ("-l a* -l b f()", MagicOptions("f()", report=ReportOptions(only=("a*", "b")))),
        ("-1 + f()", MagicOptions("-1 + f()")),
    ],
)
def test_line_is_split_into_options_and_statement(line, options):
    """Options come first; the statement is the rest, untouched."""
    assert parse_line(line) == options


@pytest.mark.parametrize(
    ("line", "named"),
    [("-z f()", "-z"), ("-s luck f()", "luck"), ("-l 0 f()", "0"), ("-s", "-s")],
)
def test_line_that_makes_no_sense_is_refused(line, named):
    """The message names what was given."""
    with pytest.raises(OptionError, match=named):
        parse_line(line)


def test_line_magic_shows_the_profile(shell, published):
    """The calls of the statement are in the report that is shown."""
    shell.run_line_magic("numbaprof", "for _ in range(3): double(1)")
    (bundle,) = published
    assert "double(int64)" in bundle["text/plain"]
    assert set(bundle) == {"text/plain", "text/html", "image/svg+xml"}


def test_line_magic_returns_the_profile_when_asked(shell, published):
    """With -r the result is the value, and nothing is shown."""
    result = shell.run_line_magic("numbaprof", "-r double(2)")
    assert isinstance(result, numbaprof.ProfileResult)
    assert sum(overload.calls or 0 for overload in result.overloads) == 1
    assert published == []


def test_cell_runs_in_the_namespace_of_the_shell(shell, published):
    """Names that the cell binds are there afterwards; it may use what was there."""
    shell.run_cell_magic("numbaprof", "-q factor = 3", "value = double(factor)\n")
    assert shell.user_ns["value"] == 6
    assert published == []


def test_statement_with_braces_is_left_alone(shell, published):
    """The shell does not replace {names} in the statement."""
    shell.run_line_magic("numbaprof", "-q text = '{double}'")
    assert shell.user_ns["text"] == "{double}"


def test_profile_and_report_are_saved(shell, published, tmp_path, capsys):
    """-D makes a file to load, -T one to read."""
    saved, written = tmp_path / "p.json", tmp_path / "p.txt"
    shell.run_line_magic("numbaprof", f"-q -D {saved} -T '{written}' double(1)")
    assert "double" in {
        o.function.qualname for o in numbaprof.load(saved).overloads if o.calls
    }
    assert "double(int64)" in written.read_text(encoding="utf-8")


def test_exit_of_the_statement_ends_there(shell, published, capsys):
    """SystemExit does not end the notebook, and the profile is shown."""
    shell.run_line_magic("numbaprof", "raise SystemExit(3)")
    assert "*** SystemExit in the code being profiled." in capsys.readouterr().out
    assert len(published) == 1


def test_exception_goes_on_after_the_profile_was_shown(shell, published):
    """What the statement raises is the user's; what was measured is shown."""
    run = shell.find_line_magic("numbaprof")
    with pytest.raises(ZeroDivisionError):
        run("double(1); 1 / 0")
    assert "double(int64)" in published[0]["text/plain"]


def test_second_session_is_refused_without_a_profile(shell, published):
    """While another session runs, the error says so and nothing is shown."""
    run = shell.find_line_magic("numbaprof")
    with numbaprof.profile(), pytest.raises(numbaprof.ActiveSessionError):
        run("double(1)")
    assert published == []


@pytest.mark.parametrize("line", ["", "-r", "-z f()"])
def test_wrong_line_is_a_usage_error(shell, line):
    """The user sees one line instead of a traceback."""
    from IPython.core.error import UsageError

    with pytest.raises(UsageError):
        shell.find_line_magic("numbaprof")(line)


def test_lines_of_a_cell_are_sampled_when_asked(shell, published):
    """The text of the lines comes from the cell."""
    shell.run_cell(
        "import numba\n"
        "@numba.njit\n"
        "def spin(n):\n"
        "    s = 0.0\n"
        "    for i in range(n):\n"
        "        s += i ** 0.5\n"
        "    return s\n"
    )
    result = shell.run_line_magic("numbaprof", "-rL spin(300_000_000)")
    rows = result.lines[result.lines.samples > 0]
    assert "s += i ** 0.5" in {text.strip() for text in rows.source}
