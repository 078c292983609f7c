"""``numbaprof compare`` from the command line."""

from __future__ import annotations

import json
import math

import pytest
from builders import make_environment, make_overload, make_process, make_result
from run_builders import fingerprint, make_run, make_run_overload, make_times

from numbaprof import cli, runfile, store


def save(path, mean_ns, code, target="one"):
    """Save the profile of a program with one overload."""
    environment = make_environment(target=target)
    overload = make_overload(mean_ns=mean_ns, fingerprint=fingerprint(code))
    result = make_result(overload, processes=(make_process(environment=environment),))
    store.save(result, path)


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Make a folder with profiles and a run file, and go there."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    save("base.json", 1000, "a")
    save("same.json", 1000, "a")
    save("slow.json", 3000, "b")
    save("elsewhere.json", 1000, "a", target="two")
    save("other.json", 1000, "a")
    store.save(make_result(make_overload("other")), "other.json")
    (tmp_path / "cut.json").write_text((tmp_path / "base.json").read_text()[:-100])
    run = make_run(make_run_overload(times=(make_times(*[math.log(1.2)] * 10),)))
    runfile.save_run(run, "run.json")
    return tmp_path


def run(capsys, line):
    """Run ``numbaprof compare``; return exit code, stdout and stderr."""
    try:
        code = cli.main(["compare", *line.split()])
    except SystemExit as exit:
        code = exit.code
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("base.json same.json", 0),
        ("base.json slow.json", 1),
        ("base.json slow.json --exit-zero", 0),
        ("base.json slow.json --fail new,simd", 0),
        ("base.json slow.json --fail none", 0),
        ("run.json", 1),
        ("run.json --min-effect 30%", 0),
        ("base.json elsewhere.json", 0),
        ("base.json elsewhere.json --strict-target", 2),
        ("base.json elsewhere.json --strict-target --exit-zero", 2),
        ("base.json missing.json", 2),
        ("base.json cut.json", 2),
        ("base.json other.json", 2),
        ("base.json", 2),
        ("base.json slow.json --fail speed", 2),
        ("base.json slow.json --min-effect much", 2),
        ("base.json slow.json --write pdf=x", 2),
        ("base.json slow.json --write md=no/such/folder.md", 2),
    ],
)
def test_exit_code(capsys, files, line, expected):
    """0 without a regression, 1 with one, 2 when it could not be compared."""
    code, _, err = run(capsys, line)
    assert code == expected
    assert bool(err) is (expected == 2)


@pytest.mark.parametrize(
    ("kind", "beginning"),
    [
        ("term", "numbaprof: 1 regression"),
        ("md", "## "),
        ("json", "{"),
        ("junit", "<?xml"),
        ("csv", "test,function,"),
    ],
)
def test_format_goes_to_stdout(capsys, files, kind, beginning):
    """Each format can be asked for."""
    code, out, err = run(capsys, f"base.json slow.json --format {kind}")
    assert (code, err) == (1, "")
    assert out.startswith(beginning)


def test_files_are_written_beside_the_terminal(capsys, files):
    """One command makes the comment, the artefact and the terminal's table."""
    line = "base.json slow.json --write md=c.md --write junit=c.xml --write json=c.json"
    _, out, _ = run(capsys, line)
    assert out.startswith("numbaprof: 1 regression")
    assert (files / "c.md").read_text().startswith("## ")
    assert (files / "c.xml").read_text().startswith("<?xml")
    assert json.loads((files / "c.json").read_text())["exit_code"] == 1


def test_github_gets_summary_and_annotations(capsys, files, monkeypatch):
    """The summary is appended to, the annotations go to the log."""
    summary = files / "summary.md"
    summary.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    _, out, _ = run(capsys, "base.json slow.json --github")
    assert summary.read_text().startswith("before\n## 🔴 numbaprof")
    assert "::error file=demo.py,line=10,title=numbaprof%3A demo.kernel" in out


def test_annotations_leave_a_machine_readable_stdout_whole(capsys, files):
    """With JSON on stdout they go to stderr."""
    _, out, err = run(capsys, "base.json slow.json --github --format json")
    assert json.loads(out)["verdict"] == "regression"
    assert err.startswith("::error ")


def test_error_names_what_to_do(capsys, files):
    """An error is one sentence on stderr."""
    _, out, err = run(capsys, "base.json cut.json")
    assert out == ""
    assert err.startswith("numbaprof: cut.json: neither a profile nor a run file")
