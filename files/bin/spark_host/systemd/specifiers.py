"""What the %-specifiers of a unit file stand for: systemd.unit(5), "Specifiers"."""

from __future__ import annotations

import os
import pwd
import re

ANY = "\0"  # of a template: whatever its instance is called
ESCAPED = re.compile(r"\\x([0-9a-fA-F]{2})")
SPECIFIER = re.compile(rb"%(.)")


def expanded(text: bytes, name: str, person: pwd.struct_passwd | None = None) -> bytes:
    """A unit's text with its specifiers replaced; those that are not known stay.

    name: llm@.service or llm@big.service; person: whose manager runs it, None for the system's
    """
    if b"%" not in text:
        return text
    known = meanings(name, person)

    def meant(found: re.Match[bytes]) -> bytes:
        value = known.get(found[1].decode("latin-1"))
        return found[0] if value is None else os.fsencode(value)

    return SPECIFIER.sub(meant, text)


def meanings(name: str, person: pwd.struct_passwd | None) -> dict[str, str]:
    """{letter: value}. Of the system's manager %h and %u are root's, whatever User= says."""
    whole, _, _ = name.rpartition(".")
    prefix, at, instance = whole.partition("@")
    instance = instance or (ANY if at else "")
    last = prefix.rsplit("-", 1)[-1]
    home = person.pw_dir if person else "/root"
    user = {"h": home, "s": person.pw_shell if person else "/bin/sh"}
    user.update(u=person.pw_name if person else "root", U=str(person.pw_uid if person else 0))
    user.update(g=user["u"], G=str(person.pw_gid if person else 0))
    folders = {"t": "/run", "S": "/var/lib", "C": "/var/cache", "L": "/var/log", "E": "/etc"}
    if person:
        folders = {"t": f"/run/user/{person.pw_uid}", "S": f"{home}/.local/state"}
        folders.update(C=f"{home}/.cache", L=f"{home}/.local/state/log", E=f"{home}/.config")
    host = os.uname()
    return {
        **user,
        **folders,
        **{"n": name, "N": whole, "p": prefix, "P": unescaped(prefix), "T": "/tmp"},
        **{"i": instance, "I": unescaped(instance), "f": "/" + unescaped(instance or prefix)},
        **{"j": last, "J": unescaped(last), "V": "/var/tmp", "%": "%"},
        **{"H": host.nodename, "l": host.nodename.split(".")[0], "v": host.release},
    }


def unescaped(text: str) -> str:
    """As systemd-escape --unescape: a dash was a slash."""
    return ESCAPED.sub(lambda found: chr(int(found[1], 16)), text.replace("-", "/"))
