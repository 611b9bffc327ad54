"""The apt sources of a machine, in both forms, give the archive of the guests."""

from __future__ import annotations

import pytest

from lab.common.errors import LabError
from lab.image.distro import archive_uri

DEB822 = """\
# comment: not a field
Types: deb deb-src
URIs: http://mirror.invalid/debian/
Suites: bookworm bookworm-updates
Components: main contrib
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://mirror.invalid/debian-security
Suites: bookworm-security
Components: main
"""
FOREIGN = "deb [arch=amd64 signed-by=/x.gpg] https://tools.invalid/apt tool-bookworm main\n"
ONE_LINE = """\
deb-src http://src.invalid/ubuntu noble main
deb http://m.invalid/ubuntu noble main universe
"""


def test_deb822_source_is_found_behind_a_foreign_one() -> None:
    assert archive_uri([FOREIGN, DEB822], "bookworm") == "http://mirror.invalid/debian"


def test_one_line_source_is_found_and_source_packages_are_not() -> None:
    assert archive_uri([ONE_LINE], "noble") == "http://m.invalid/ubuntu"


def test_disabled_source_is_not_used() -> None:
    with pytest.raises(LabError, match="no apt source for suite bookworm"):
        archive_uri([DEB822.replace("Types:", "Enabled: no\nTypes:")], "bookworm")


def test_missing_source_is_one_sentence() -> None:
    with pytest.raises(LabError, match="add one and try again"):
        archive_uri([FOREIGN], "noble")
