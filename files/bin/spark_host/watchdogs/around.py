"""What a script says around the names of the scripts that it runs: its own folder, in the ways
that shells have for it, and what it assigned before."""

from __future__ import annotations

import os
import re

SELF = rb"(?:0|BASH_SOURCE(?:\[[0@]\])?)"
OWN_FOLDER = re.compile(rb"\$\{" + SELF + rb"%/\*\}|\$\{0(?::[AaP])?:h\}")
OWN_PATH = re.compile(rb"\$\{" + SELF + rb"(?::[AaP])?\}|\$(?:0\b|BASH_SOURCE\b)|\$\{\(%\):-%x\}")
# A path that is all known; what shells do with one: $(...) and `...` alike.
KNOWN = rb"[\"']?(/[^\s\"'$`();&|<>]*)[\"']?"
OPTIONS = rb"(?:[ \t]+-[-\w]*)*[ \t]+"
QUIET = rb"(?:[ \t]*[12&]?>{1,2}[ \t]*(?:/dev/null|&[12]))*[ \t]*"
FORMS = (rb"\$\([ \t]*%s[ \t]*\)", rb"`[ \t]*%s[ \t]*`")
SAME = tuple(
    re.compile(form % said)
    for form in FORMS
    for said in (
        rb"(?:readlink|realpath)" + OPTIONS + KNOWN + QUIET,
        rb"(?:CDPATH=[ \t]*)?(?:builtin )?cd"
        + OPTIONS
        + KNOWN
        + QUIET
        + rb"(?:&&|;)[ \t]*pwd(?:[ \t]+-[LP])?"
        + QUIET,
    )
)
ABOVE = tuple(re.compile(form % (rb"dirname" + OPTIONS + KNOWN + QUIET)) for form in FORMS)
ELSEWHERE = re.compile(rb"__file__|__dirname|\bFindBin\b|import\.meta|\$0\b|BASH_SOURCE|\$\{0")
DEFAULT = re.compile(rb"\$\{(\w+):?-([^{}$]*)\}")
OF_ITSELF = re.compile(rb"\b(\w+)=([\"']?)\$\{\1:?-([^{}$]*)\}")  # NAME=${NAME:-default}
MADE = re.compile(rb"\$\{(\w+):?=([^{}$\"']*)\}")
QUOTED = re.compile(rb"[\"'](/[^\s\"'$`]*)[\"'](?=[/\w.])")  # "/a"/b is one word
ASSIGNED = re.compile(
    rb"(?:^|[;&{(\n]|\bthen\b|\bdo\b|\belse\b)[ \t]*"
    rb"(?:(?:export|readonly|local|declare|typeset)[ \t]+(?:-\w+[ \t]+)*)?"
    rb"([A-Za-z_]\w*)=(\"[^\"\n]*\"|'[^'\n]*'|[^\s;|&()<>]*)"
)
USED = re.compile(rb"\$\{(\w+)(?::?=[^{}$]*)?\}|\$(\w+)")
ROUNDS = 6  # of what is made out of what; people stop at three
LONGEST_BYTES = 4096  # a value that grows beyond is no path


def read(text: bytes, path: str) -> tuple[bytes, dict[str, list[str]]]:
    """(the text with what is certain put in its place, {variable: values} of those with several).

    path: of the script itself
    """
    for _ in range(ROUNDS):
        before, text = text, once(text, os.fsencode(path))
        if text == before:
            break
    given = assigned(text)
    several = {
        name.decode(): [value.decode("latin-1") for value in values]
        for name, values in given.items()
        if len(values) > 1
    }
    return text, several


def once(text: bytes, path: bytes) -> bytes:
    text = OF_ITSELF.sub(lambda m: m[1] + b"=" + m[2] + m[3], own_paths(text, path))
    given = assigned(text)
    text = DEFAULT.sub(lambda m: b"${%s}" % m[1] if m[1] in given else m[2], text)
    return QUOTED.sub(lambda m: m[1], USED.sub(lambda m: certain(m, given), text))


def own_paths(text: bytes, path: bytes) -> bytes:
    text = OWN_FOLDER.sub(lambda _: os.path.dirname(path), text)
    text = OWN_PATH.sub(lambda _: path, text)
    for _ in range(ROUNDS):
        before = text
        for form in SAME:
            text = form.sub(lambda m: os.path.normpath(m[1]), text)
        for form in ABOVE:
            text = form.sub(lambda m: os.path.dirname(m[1]), text)
        if text == before:
            break
    return text


def assigned(text: bytes) -> dict[bytes, list[bytes]]:
    found: dict[bytes, list[bytes]] = {}
    for name, said in (*ASSIGNED.findall(text), *MADE.findall(text)):
        value = said[1:-1] if said[:1] in (b'"', b"'") else said
        if value and value not in found.setdefault(name, []):
            found[name].append(value)
    return found


def certain(found: re.Match[bytes], given: dict[bytes, list[bytes]]) -> bytes:
    """The value of a variable that has one alone, and not itself in it."""
    values = given.get(found[1] or found[2], [])
    if len(values) != 1 or b"$" in values[0] or len(values[0]) > LONGEST_BYTES:
        return found[0]
    return values[0]


def beside(text: bytes, path: str) -> list[str]:
    """Folders that a name alone may lie in: its own, where a script asks for that."""
    return [os.path.dirname(path)] if ELSEWHERE.search(text) else []
