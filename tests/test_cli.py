"""The command line."""

from __future__ import annotations

import pytest
from builders import (
    make_line_site,
    make_overload,
    make_process,
    make_result,
    make_sampling,
    make_stack,
)
from running import Runner

import numbaprof
from numbaprof import cli, store
from numbaprof.report import SORT_NAMES

TAKES_VALUE = {"-o", "--top"}


@pytest.fixture
def profile(tmp_path):
    """Return the path of a saved profile."""
    path = tmp_path / "profile.json"
    store.save(make_result(make_overload("kernel"), make_overload("helper")), path)
    return path


def run(capsys, *arguments):
    """Run the command line; return exit code, stdout and stderr."""
    try:
        code = cli.main(list(map(str, arguments)))
    except SystemExit as exit:
        code = exit.code
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.parametrize(
    ("words", "options", "program"),
    [
        ("script.py", "", "script.py"),
        ("--top 3 script.py --top 4", "--top 3", "script.py --top 4"),
        ("--top=3 script.py", "--top=3", "script.py"),
        ("-q -o f -m mod -o g", "-q -o f", "-m mod -o g"),
        ("-ofile script.py", "-ofile", "script.py"),
        ("-mmod a", "", "-m mod a"),
        ("-c pass -- -m x", "", "-c pass -- -m x"),
        ("-q - a", "-q", "- a"),
        ("-- -odd.py -q", "", "-odd.py -q"),
        ("-q -- script.py -- a", "-q", "script.py -- a"),
        ("-q", "-q", ""),
        ("--help", "--help", ""),
    ],
)
def test_program_begins_at_the_first_word_that_is_no_option(words, options, program):
    """What follows belongs to the program, whatever it looks like."""
    split = cli.split_at_program(words.split(), TAKES_VALUE)
    assert split == (options.split(), program.split())


def test_version_is_shown(capsys):
    """--version says what bug reports need."""
    code, out, _ = run(capsys, "--version")
    assert (code, out) == (0, f"numbaprof {numbaprof.__version__}\n")


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["merge", "-h"]])
def test_help_is_shown(capsys, arguments):
    """Help goes to stdout and is no error."""
    code, out, err = run(capsys, *arguments)
    assert (code, err) == (0, "")
    assert out.startswith("usage: numbaprof")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "required: COMMAND"),
        (["rum"], "invalid choice: 'rum'"),
        (["run"], "there is no program to run"),
        (["run", "-q"], "there is no program to run"),
        (["run", "-m"], "argument -m: expected what to run"),
        (["run", "--tpo", "3", "x.py"], "unrecognized arguments: --tpo"),
        (["run", "--sort", "size", "x.py"], "invalid choice: 'size'"),
        (["run", "--top", "0", "x.py"], "top is 0, it must be at least 1"),
        (["run", "--top", "many", "x.py"], "invalid int value: 'many'"),
        (["report"], "required: FILE"),
        (["merge", "a"], "required: -o"),
        (["merge", "-o", "x"], "required: FILE"),
    ],
)
def test_wrong_command_line_is_told_what_is_wrong(capsys, arguments, message):
    """The exit code is 2, as of every command that argparse reads for."""
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert message in err


def test_forgotten_command_is_guessed(capsys, tmp_path):
    """``numbaprof script.py`` is an easy mistake."""
    script = tmp_path / "script.py"
    script.touch()
    code, _, err = run(capsys, script)
    assert code == 2
    assert f"did you mean: numbaprof run {script}" in err


def test_report_is_printed_on_stdout(capsys, profile):
    """A report that was asked for is the command's output."""
    code, out, err = run(capsys, "report", profile)
    assert (code, err) == (0, "")
    assert "kernel(int64)" in out


def test_report_lists_only_what_was_asked_for(capsys, profile):
    """--only may be repeated and narrows the list."""
    _, out, _ = run(capsys, "report", profile, "--only", "help*", "--only", "no")
    assert "helper(int64)" in out
    assert "kernel(int64)" not in out


@pytest.mark.parametrize("key", SORT_NAMES)
def test_report_can_be_sorted_by_every_key(capsys, profile, key):
    """Every key that help names works."""
    code, out, _ = run(capsys, "report", "--sort", key, profile)
    assert code == 0
    assert "kernel(int64)" in out


@pytest.mark.parametrize("command", [["report"], ["merge", "-o", "out.json"]])
def test_missing_file_is_named(capsys, tmp_path, monkeypatch, command):
    """A file that is not there ends with 1 and its name."""
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, *command, "none.json")
    assert (code, out) == (1, "")
    assert err == "numbaprof: cannot read none.json: No such file or directory\n"


def test_file_that_is_no_profile_is_refused(capsys, tmp_path):
    """The message says what is wrong with it and what to give instead."""
    path = tmp_path / "other.json"
    path.write_text("[]")
    code, _, err = run(capsys, "report", path)
    assert code == 1
    assert f"{path}: not a profile of numbaprof" in err


def test_profile_of_a_newer_numbaprof_is_refused(capsys, profile):
    """Both versions and the next step are named."""
    text = profile.read_text().replace('"format_version":1', '"format_version":9')
    profile.write_text(text)
    code, _, err = run(capsys, "report", profile)
    assert code == 1
    assert "format_version 9, this one reads up to 1; upgrade" in err


def test_profiles_are_added(capsys, tmp_path):
    """The sum is a profile like any other."""
    paths = [tmp_path / f"{pid}.json" for pid in (1, 2)]
    for pid, path in enumerate(paths):
        process = make_process(pid=pid)
        store.save(make_result(make_overload(calls=2), processes=(process,)), path)
    out = tmp_path / "all.json.gz"
    assert run(capsys, "merge", *paths, "-o", out) == (0, "", "")
    assert store.load(out).overloads[0].calls == 4


def test_same_profile_twice_is_not_added(capsys, profile, tmp_path):
    """Calls would count double."""
    code, _, err = run(capsys, "merge", profile, profile, "-o", tmp_path / "out")
    assert code == 1
    assert "count double" in err


def test_sum_is_rescued_when_it_cannot_be_written(
    capsys, profile, tmp_path, monkeypatch
):
    """The exit code is 1 and the message says where the sum is."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    code, _, err = run(capsys, "merge", profile, "-o", tmp_path / "no" / "out.json")
    assert code == 1
    rescued = tmp_path / err.split(f"saved in {tmp_path}/")[1].split(" ")[0]
    assert store.load(rescued) == store.load(profile)


def test_reader_that_goes_away_is_no_error_message(tmp_path, profile):
    """``numbaprof report ... | head`` ends quietly."""
    runner = Runner(tmp_path)
    done = runner.python(
        "-c",
        "import os, sys\nreader, writer = os.pipe(); os.close(reader)\n"
        "os.dup2(writer, 1)\nfrom numbaprof.cli import main\n"
        f"sys.exit(main(['report', {str(profile)!r}]))",
    )
    assert (done.exit_code, done.stderr) == (1, "")


def test_package_is_a_command(tmp_path, profile):
    """``python -m numbaprof`` is the same as ``numbaprof``."""
    done = Runner(tmp_path).numbaprof("report", profile)
    assert done.exit_code == 0
    assert "kernel(int64)" in done.stdout


def test_signatures_are_refused_without_the_functions_they_are_of(capsys):
    """--signatures says nothing about overloads."""
    code, _, err = run(capsys, "run", "--signatures", "type", "script.py")
    assert code == 2
    assert "--signatures: needs --python" in err


def test_lines_of_a_saved_profile_are_printed(tmp_path, capsys):
    """Only the lines: the other parts are what `report` is for."""
    stack = make_stack(0, count=400)
    result = make_result(
        make_overload(),
        line_sites=(make_line_site(12),),
        stacks=(stack,),
        sampling=(make_sampling(stack),),
    )
    store.save(result, tmp_path / "p.json")
    code, out, _ = run(capsys, "lines", tmp_path / "p.json")
    assert code == 0
    assert "Line Contents" in out
    assert "Overloads" not in out


def test_lines_of_a_profile_without_them_say_how_to_get_them(profile, capsys):
    """Asked for what was not measured, say what to do."""
    code, _, err = run(capsys, "lines", profile)
    assert code == 1
    assert "numbaprof run --lines" in err
