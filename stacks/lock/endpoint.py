"""The Hub's address, as HF_ENDPOINT may give it: what is shown of it, and who gets the token."""

from __future__ import annotations

import ipaddress
import urllib.parse

from huggingface_hub import get_token


def shown(url: str) -> str:
    """An address without the login that may stand in it."""
    try:
        parts = urllib.parse.urlsplit(url)
        if not parts.hostname:
            return "the Hub at HF_ENDPOINT"
        place = parts.netloc.rpartition("@")[2]
    except ValueError:
        return "the Hub at HF_ENDPOINT"
    text = urllib.parse.urlunsplit((parts.scheme, place, parts.path, "", ""))
    return "".join(one if one.isprintable() else "?" for one in text)


def without_login(text: str, url: str) -> str:
    """What a library said, with the address as it may be shown."""
    login = url.rpartition("@")[0].rpartition("/")[2]
    for secret in (url, login, login.partition(":")[2]) if login else ():
        text = text.replace(secret, shown(url) if secret == url else "...") if secret else text
    return text


def token(url: str) -> str | None:
    """The token of this machine, None where it would cross a network in the clear."""
    return (get_token() or None) if encrypted(url) else None


def encrypted(url: str) -> bool:
    """Whether nobody on the way can read what is sent: https, or this very machine."""
    try:
        parts = urllib.parse.urlsplit(url)
        host = parts.hostname or ""
        if parts.scheme == "https" or host == "localhost":
            return True
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
