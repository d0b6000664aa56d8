"""Files a console leaves are private, whole, and never over another one."""

from __future__ import annotations

import errno
import os
import stat
from datetime import UTC

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.handover import files

AT = 1_800_000_000.0


def test_a_file_is_the_users_alone_and_nothing_else_is_left(tmp_path):
    made = files.write(tmp_path, "a.csv", "x,y\r\n")
    assert made == tmp_path / "a.csv"
    assert stat.S_IMODE(made.stat().st_mode) == 0o600
    assert made.read_bytes() == b"x,y\r\n"
    assert os.listdir(tmp_path) == ["a.csv"]


def test_what_is_there_is_never_replaced(tmp_path):
    (tmp_path / "a.csv").write_text("mine")
    os.symlink("nowhere", tmp_path / "a-2.csv")
    assert files.write(tmp_path, "a.csv", "new").name == "a-3.csv"
    assert (tmp_path / "a.csv").read_text() == "mine"


def test_a_full_disk_is_a_sentence_and_leaves_nothing(tmp_path, monkeypatch):
    def full(handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(OSError) as e:
        files.write(tmp_path, "a.csv", "x" * 9)
    assert files.why(e.value, tmp_path) == (
        f"nothing was written to {tmp_path}: No space left on device; make room, or start the "
        "console in another folder"
    )
    assert os.listdir(tmp_path) == []


def test_a_folder_that_is_not_there_is_a_sentence(tmp_path):
    with pytest.raises(OSError) as e:
        files.write(tmp_path / "no", "a.csv", "")
    assert "No such file" in files.why(e.value, tmp_path / "no")


@given(st.text(max_size=60) | st.sampled_from(["../../etc/passwd", "a/b", "..", "", "-rf"]))
def test_a_pools_name_is_data_in_a_files_name(pool):
    name = files.file_name("heat", pool, AT, "csv", UTC)
    assert os.path.basename(name) == name
    assert name.isascii()
    assert name.startswith("tenantscope-")
    assert name.endswith("-heat-20270115-080000.csv")
    assert len(name) < 100
