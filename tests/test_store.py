"""Profiles in files."""

from __future__ import annotations

import gzip
import json
import math
import os
import stat
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from builders import (
    array,
    make_arg,
    make_boxing,
    make_dispatcher,
    make_environment,
    make_event,
    make_losses,
    make_overload,
    make_process,
    make_result,
    scalar,
)
from jsonschema import Draft202012Validator

from numbaprof import store
from numbaprof.errors import FormatError, SaveError
from numbaprof.model import ThreadSplit

PUBLISHED_SCHEMA = Path(__file__).parent.parent / "docs" / "profile-1.schema.json"


def full_result():
    """Build a profile that uses every class of the model."""
    pair = make_arg("Tuple(int64, int64)", kind="tuple", items=(scalar(), scalar()))
    return make_result(
        make_overload(
            args=(array(), pair),
            boxing=make_boxing(),
            threads=(ThreadSplit(n_threads=2, calls=1, inclusive_ns=9, cpu_ns=12),),
        ),
        make_overload("hidden", calls=None),
        events=(make_event(passes=(("type inference", 7),)),),
        dispatchers=(make_dispatcher(options=(("parallel", "True"),)),),
        losses=make_losses(unattached=(("no entry point", 2),)),
    )


def written(path, **changes):
    """Write a document of a sound profile with some keys replaced."""
    store.save(make_result(make_overload()), path)
    document = json.loads(path.read_text()) | changes
    path.write_text(json.dumps(document))
    return path


def edited(path, edit):
    """Write a sound profile whose plain data ``edit`` has changed."""
    store.save(make_result(make_overload()), path)
    document = json.loads(path.read_text())
    edit(document["profile"])
    path.write_text(json.dumps(document))
    return path


@pytest.mark.parametrize("name", ["p.json", "p.json.gz", "p"])
def test_loaded_profile_equals_the_saved_one(tmp_path, name):
    """Nothing is lost or changed between saving and loading."""
    result = full_result()
    store.save(result, tmp_path / name)
    assert store.load(tmp_path / name) == result


def test_name_ending_in_gz_is_compressed(tmp_path):
    """The suffix decides about compression."""
    store.save(full_result(), tmp_path / "p.json.gz")
    document = json.loads(gzip.decompress((tmp_path / "p.json.gz").read_bytes()))
    assert document["format_version"] == store.FORMAT_VERSION


def test_compressed_file_is_read_when_renamed(tmp_path):
    """Reading looks at the content, not at the name."""
    store.save(full_result(), tmp_path / "p.json.gz")
    (tmp_path / "p.json.gz").rename(tmp_path / "p.json")
    assert store.load(tmp_path / "p.json") == full_result()


def test_equal_profiles_make_equal_files(tmp_path):
    """A compressed file carries no time of its own."""
    store.save(full_result(), tmp_path / "a.gz")
    store.save(full_result(), tmp_path / "b.gz")
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()


def test_unknown_overhead_is_null_in_the_file_and_nan_again(tmp_path):
    """JSON has no NaN: an unknown figure is written as null."""
    environment = make_environment(overhead_ns=math.nan, overhead_reason="no clock")
    result = make_result(processes=(make_process(environment=environment),))
    store.save(result, tmp_path / "p")
    plain = json.loads((tmp_path / "p").read_text())["profile"]
    assert plain["processes"][0]["environment"]["overhead_ns"] is None
    loaded = store.load(tmp_path / "p").processes[0].environment
    assert math.isnan(loaded.overhead_ns)


def test_saved_file_has_the_permissions_of_any_new_file(tmp_path):
    """The umask decides who may read a profile, as for every other file."""
    (tmp_path / "other").touch()
    store.save(make_result(), tmp_path / "p")
    assert (tmp_path / "p").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_symbolic_link_survives_saving(tmp_path):
    """Writing through a link replaces the file it points to."""
    (tmp_path / "link").symlink_to(tmp_path / "real")
    store.save(make_result(), tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert store.load(tmp_path / "real") == make_result()


@pytest.mark.linux
def test_named_pipe_is_written_to_and_stays(tmp_path):
    """What is no regular file is not replaced by one."""
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        store.save(make_result(), tmp_path / "pipe")
        assert os.read(reader, 10) == b'{"format":'
    finally:
        os.close(reader)
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_failed_write_leaves_the_older_file_and_no_other(tmp_path, monkeypatch):
    """A file is replaced whole or not at all."""
    store.save(make_result(), tmp_path / "p")

    def refuse(source, destination):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(SaveError, match="No space left"):
        store.save(full_result(), tmp_path / "p")
    assert store.load(tmp_path / "p") == make_result()
    assert [file.name for file in tmp_path.iterdir()] == ["p"]


def test_unwritable_destination_is_named(tmp_path):
    """The error says which file, why, and what to do."""
    with pytest.raises(SaveError, match="No such file or directory") as caught:
        store.save(make_result(), tmp_path / "no" / "p.json")
    assert caught.value.filename == str(tmp_path / "no" / "p.json")
    assert "choose a file" in str(caught.value)


def test_profile_is_rescued_when_it_cannot_be_saved(tmp_path, monkeypatch):
    """The profile goes to the temporary folder, with the reason."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    saved = store.save_or_rescue(full_result(), tmp_path / "no" / "p.json.gz")
    assert saved.path.parent == tmp_path
    assert "No such file or directory" in saved.problem
    assert store.load(saved.path) == full_result()


def test_nothing_is_rescued_when_saving_works(tmp_path):
    """A profile that could be saved is where it was asked for."""
    saved = store.save_or_rescue(make_result(), tmp_path / "p")
    assert saved == store.SavedProfile(path=tmp_path / "p", problem="")


def test_missing_file_is_an_ordinary_error(tmp_path):
    """A file that is not there raises what opening it would raise."""
    with pytest.raises(FileNotFoundError):
        store.load(tmp_path / "nothing")


@pytest.mark.parametrize(
    "content",
    [b"", b"\x80\x04K\x01.", b"{", b"ncalls  tottime", b"\x1f\x8b\x08damaged", b"\xff"],
)
def test_file_that_is_not_json_is_refused(tmp_path, content):
    """Pickles, text and damaged archives are told from profiles."""
    (tmp_path / "p").write_bytes(content)
    with pytest.raises(FormatError, match="not JSON"):
        store.load(tmp_path / "p")


@pytest.mark.parametrize("content", ["[]", "{}", "3", '{"format": "speedscope"}'])
def test_json_that_is_not_a_profile_is_refused(tmp_path, content):
    """Any other JSON is told from a profile."""
    (tmp_path / "p").write_text(content)
    with pytest.raises(FormatError, match="not a profile of numbaprof"):
        store.load(tmp_path / "p")


def test_newer_format_is_refused_with_both_versions(tmp_path):
    """The error names the version found, the one supported, and the next step."""
    path = written(tmp_path / "p", format_version=store.FORMAT_VERSION + 1)
    with pytest.raises(FormatError, match=r"format_version 2.*up to 1; upgrade"):
        store.load(path)


@pytest.mark.parametrize("version", [None, 0, "1", True, 1.0])
def test_impossible_format_version_is_refused(tmp_path, version):
    """A version that no numbaprof has written is damage."""
    with pytest.raises(FormatError, match="damaged profile"):
        store.load(written(tmp_path / "p", format_version=version))


def test_missing_required_field_is_named_with_its_place(tmp_path):
    """A damaged profile is refused at the very place."""
    path = edited(tmp_path / "p", lambda p: p["overloads"][0].pop("signature"))
    with pytest.raises(
        FormatError, match=r"profile\.overloads\[0\]: OverloadStats lacks .* signature"
    ):
        store.load(path)


def test_field_with_a_default_may_be_missing(tmp_path):
    """A file of an older numbaprof lacks the fields that came later."""
    path = edited(tmp_path / "p", lambda p: p["overloads"][0].pop("elements"))
    assert store.load(path) == make_result(make_overload())


def test_unknown_field_is_refused(tmp_path):
    """A figure of a newer numbaprof is not dropped without a word."""
    path = edited(tmp_path / "p", lambda p: p["overloads"][0].update(joules=3))
    with pytest.raises(FormatError, match="OverloadStats has no field joules"):
        store.load(path)


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("calls", "3", "expected an integer, found '3'"),
        ("calls", True, "expected an integer, found True"),
        ("calls", 1.0, "expected an integer, found 1.0"),
        ("countable", 1, "expected true or false"),
        ("signature", None, "expected a string, found None"),
        ("kind", "lambda", "expected one of 'function', 'generator'"),
        ("histogram", {}, "expected a list"),
        ("function", [], "expected an object (FunctionId)"),
    ],
)
def test_value_of_a_wrong_type_is_refused(tmp_path, field, value, problem):
    """Each field is read as its type, nothing else."""
    path = edited(tmp_path / "p", lambda p: p["overloads"][0].update({field: value}))
    with pytest.raises(FormatError) as caught:
        store.load(path)
    assert f"profile.overloads[0].{field}: {problem}" in str(caught.value)


def test_pair_of_the_wrong_length_is_refused(tmp_path):
    """A tuple of fixed length has that length."""
    path = edited(
        tmp_path / "p", lambda p: p["losses"].update(unattached=[["reason", 1, 2]])
    )
    with pytest.raises(FormatError, match=r"losses\.unattached\[0\]: .* list of 2"):
        store.load(path)


def test_published_schema_is_the_generated_one():
    """``python -m numbaprof.store`` was run after the last change of the model."""
    assert json.loads(PUBLISHED_SCHEMA.read_text()) == store.file_schema()


def test_saved_file_validates_against_the_published_schema(tmp_path):
    """What is written is what was published."""
    schema = json.loads(PUBLISHED_SCHEMA.read_text())
    Draft202012Validator.check_schema(schema)
    store.save(full_result(), tmp_path / "p")
    document = json.loads((tmp_path / "p").read_text())
    errors = Draft202012Validator(schema).iter_errors(document)
    assert [error.message for error in errors] == []


def test_published_schema_rejects_a_misspelled_field(tmp_path):
    """The schema is strict enough to find mistakes of other writers."""
    validator = Draft202012Validator(json.loads(PUBLISHED_SCHEMA.read_text()))
    path = edited(tmp_path / "p", lambda p: p["overloads"][0].update(cals=3))
    assert not validator.is_valid(json.loads(path.read_text()))


def test_object_outside_the_model_is_not_written(tmp_path):
    """Only the model's own types reach a file."""
    result = replace(make_result(), overloads=(object(),))
    with pytest.raises(TypeError, match="no part of the data model"):
        store.save(result, tmp_path / "p")
    assert not (tmp_path / "p").exists()


@pytest.mark.parametrize(
    ("part", "field", "value"),
    [("contexts", "parent", 1), ("contexts", "parent", 10**30)],
)
def test_file_with_an_index_that_leads_nowhere_is_refused(tmp_path, part, field, value):
    """Following it would never end, or end in an IndexError."""
    path = edited(tmp_path / "p", lambda p: p[part][1].update({field: value}))
    with pytest.raises(FormatError):
        store.load(path)
