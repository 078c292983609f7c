"""Directories, git refs and executables."""

from __future__ import annotations

import subprocess
import sys

import pytest

from numbaprof.ab_sides import opened
from numbaprof.errors import OptionError


def git(*arguments, cwd):
    """Run git as somebody; return what it printed."""
    identity = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    done = subprocess.run(
        ["git", *identity, *arguments], cwd=cwd, check=True, capture_output=True,
        text=True,
    )  # fmt: skip
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """Return a repository with one commit, and work in it."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.py").write_text("A = 1\n")
    git("init", "-q", cwd=tmp_path)
    git("add", ".", cwd=tmp_path)
    git("commit", "-q", "-m", "first", cwd=tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def worktrees(folder):
    """Return the number of worktrees."""
    return len(git("worktree", "list", cwd=folder).splitlines())


def test_ref_is_checked_out_beside_and_removed(repository):
    """The working tree is left alone, the worktree is gone afterwards."""
    (repository / "sub" / "a.py").write_text("A = 2\n")
    with opened(["HEAD", "."]) as (base, head):
        assert (base.root / "sub" / "a.py").read_text() == "A = 1\n"
        assert head.root == repository
        assert worktrees(repository) == 2
        place = base.root
    assert not place.exists()
    assert worktrees(repository) == 1
    assert (repository / "sub" / "a.py").read_text() == "A = 2\n"


def test_worktree_is_removed_when_interrupted(repository):
    """Whatever ends it."""
    with pytest.raises(KeyboardInterrupt), opened(["HEAD", "."]):
        raise KeyboardInterrupt
    assert worktrees(repository) == 1


def test_ref_is_used_where_the_user_is(repository, monkeypatch):
    """In a folder below the top of the repository, so is the other side."""
    monkeypatch.chdir(repository / "sub")
    with opened(["HEAD", "."]) as (base, _):
        assert (base.root / "a.py").exists()


def test_changed_folder_is_another_version(repository):
    """Its state is the commit and a hash of what differs."""
    with opened([".", "HEAD"]) as (before, ref):
        assert before.commit == ref.commit
    (repository / "sub" / "a.py").write_text("A = 2\n")
    with opened(["."]) as (after,):
        assert after.commit.startswith(f"{before.commit}+")


def test_executable_runs_in_the_current_folder(tmp_path, monkeypatch):
    """An environment is compared by the same tests."""
    monkeypatch.chdir(tmp_path)
    with opened([sys.executable]) as (side,):
        assert (side.kind, side.python, side.root) == (
            "python", sys.executable, tmp_path
        )  # fmt: skip
        assert side.import_paths == []


def test_source_folder_comes_first(tmp_path):
    """With a src layout the package is in there."""
    (tmp_path / "src").mkdir()
    with opened([str(tmp_path)]) as (side,):
        assert side.import_paths == [str(tmp_path / "src"), str(tmp_path)]


@pytest.mark.parametrize("inside", [True, False])
def test_name_that_is_nothing_is_refused(request, tmp_path, monkeypatch, inside):
    """The message says what was tried."""
    if inside:
        request.getfixturevalue("repository")
    else:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with (
        pytest.raises(OptionError, match="no commit that git knows") as caught,
        opened(["no-such-ref"]),
    ):
        pass
    assert ("is in no git repository" in str(caught.value)) is not inside
