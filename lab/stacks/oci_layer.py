"""The one layer of the engine's image: the tree's Python, what it needs, and the engine."""

from __future__ import annotations

import shutil
import struct
import subprocess
from collections.abc import Iterable
from pathlib import Path

from lab.common.errors import LabError
from lab.common.paths import LAB

ENGINE_DIR = "opt/lab-engine"

_USERS = "root:x:0:0:root:/root:/bin/sh\n"
_GROUPS = "root:x:0:\n"
_MACHINES = {62: "amd64", 183: "arm64"}  # e_machine of ELF to GOARCH

# Imported by the interpreter itself, before the engine (-m) or late; the look at sys.modules that
# finds the rest would miss them.
_LATE_MODULES = ("runpy", "pkgutil", "encodings.idna", "encodings.ascii", "encodings.latin_1")
# Optional parts of the standard library that draw in OpenSSL and compressors (7 MB); every
# module that wants one of them does without it.
_LEFT_OUT = ("_ssl", "_hashlib", "_bz2", "_lzma")


class ImageError(LabError):
    """One sentence: what was found, what was expected, what to do next."""


def stage(root: Path, folder: Path, release: str, model_name: str) -> None:
    """Fill `folder` with the files of the layer, taken from the tree `root`.

    + release, model_name: what the engine in it calls itself and its model

    Raises ImageError when the tree has no Python that runs here.
    """
    python = _python(root)
    _stage_interpreter(root, python, folder)
    _stage_engine(folder, release, model_name)
    _compile(root, python, folder)


def architecture(root: Path) -> str:
    """The tree's architecture as OCI names it, ``amd64`` or ``arm64``, from its interpreter."""
    program = _python(root)
    with program.open("rb") as file:
        header = file.read(20)
    machine = struct.unpack_from("<H", header, 18)[0] if header[:4] == b"\x7fELF" else None
    if machine not in _MACHINES:
        raise ImageError(f"{program}: ELF machine {machine} found, x86-64 or arm64 expected")
    return _MACHINES[machine]


def _python(root: Path) -> Path:
    """The tree's interpreter, with its version in its name."""
    found = sorted((root / "usr/bin").glob("python3.[0-9]*[0-9]"))
    if not found:
        raise ImageError(f"no usr/bin/python3.x in {root}; a tree with package python3 expected")
    return found[-1]


def _loader(root: Path) -> Path:
    """The tree's dynamic loader; it runs the tree's programs without a chroot, so without root."""
    for place in ("usr/lib64/ld-linux-*.so.*", "usr/lib/ld-linux-*.so.*"):
        found = sorted(root.glob(place))
        if found:
            return found[0]
    raise ImageError(f"no usr/lib*/ld-linux-*.so.* in {root}; an unpacked root tree expected")


def _stage_interpreter(root: Path, python: Path, stage: Path) -> None:
    """Copy the interpreter, what it imports and the libraries of both into `stage`."""
    modules = _modules(root, python)
    programs = [python]
    shell = root / "usr/bin/dash"  # for a look around with docker exec; it needs only libc
    if shell.exists():
        programs.append(shell)
    for file in [*programs, *modules]:
        _copy(root, file, stage)
    for needed in _libraries(root, [*programs, *(m for m in modules if m.suffix == ".so")]):
        _copy(root, needed, stage)
    (stage / "usr/bin/python3").symlink_to(python.name)
    if shell.exists():
        (stage / "usr/bin/sh").symlink_to(shell.name)
    for name in ("bin", "lib", "lib64"):
        if (root / "usr" / name).is_dir() and (root / name).is_symlink():
            (stage / name).symlink_to(f"usr/{name}")
    (stage / "tmp").mkdir()
    (stage / "tmp").chmod(0o1777)
    (stage / "etc").mkdir()
    for name, text in (("passwd", _USERS), ("group", _GROUPS)):
        (stage / "etc" / name).write_text(text)
        (stage / "etc" / name).chmod(0o644)


def _stage_engine(stage: Path, release: str, model_name: str) -> None:
    folder = stage / ENGINE_DIR / "engine"
    folder.mkdir(parents=True)
    for module in sorted((LAB / "engine").glob("*.py")):
        shutil.copyfile(module, folder / module.name)
    (folder / "release.py").write_text(
        f'"""Written by lab/oci.py."""\n\n'
        f"VERSION = {release!r}\nDEFAULT_MODEL_NAME = {model_name!r}\n"
    )


def _copy(root: Path, file: Path, stage: Path) -> None:
    """Copy a file (what a link points to) to the same place, with a mode of two kinds only."""
    target = stage / file.relative_to(root)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, target)
    target.chmod(0o755 if file.stat().st_mode & 0o100 else 0o644)


def _compile(root: Path, python: Path, stage: Path) -> None:
    """Byte code for all of it: a start under emulation takes seconds longer without.

    Unchecked, since the sources of a layer have no time worth comparing.
    """
    _run(
        root,
        python,
        *("-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash"),
        *("-s", str(stage), "-p", "/", str(stage)),
    )


def _modules(root: Path, python: Path) -> list[Path]:
    """Files of the standard library that the engine can need.

    Packages and extension modules as found loaded once the engine is imported; every module of
    a single file on top (1 MB packed), so that an import inside a function never fails.
    """
    script = (
        "import sys\n"
        f"sys.modules.update(dict.fromkeys({_LEFT_OUT!r}))\n"
        f"sys.path.append({str(LAB)!r})\n"
        "import engine.__main__, engine.rank\n"
        f"import {', '.join(_LATE_MODULES)}\n"
        "files = {getattr(module, '__file__', None) for module in sys.modules.values()}\n"
        "print(*sorted(filter(None, files)), sep='\\n')\n"
    )
    library = root / "usr/lib" / python.name
    found = [Path(line) for line in _run(root, python, "-S", "-c", script).splitlines()]
    modules = [path for path in found if path.is_relative_to(library)]
    # Links lead out of the library: sitecustomize.py into /etc, settings of the distribution.
    single = [path for path in library.glob("*.py") if not path.is_symlink()]
    return sorted({*modules, *single})


def _libraries(root: Path, programs: Iterable[Path]) -> list[Path]:
    """The shared libraries that the programs need, and the loader."""
    # glibc loads this one by its name when a thread ends in the middle (an engine that exits on an
    # error aborts without it); no program lists it.
    found = {_loader(root), *root.glob("usr/lib/*-linux-gnu/libgcc_s.so.1")}
    for program in programs:
        for line in _load(root, "--list", str(program)).splitlines():
            place = line.partition("=>")[2].partition("(")[0].strip()
            if place.startswith(str(root)):
                found.add(Path(place))
    return sorted(found)


def _run(root: Path, python: Path, *arguments: str) -> str:
    """Run the tree's Python on this machine and return what it prints."""
    return _load(root, str(python), "-B", *arguments)


def _load(root: Path, *arguments: str) -> str:
    """Run a program of the tree through its own loader, with its own libraries."""
    loader = _loader(root)
    folders = [root / "usr/lib", *sorted((root / "usr/lib").glob("*-linux-gnu"))]
    try:
        done = subprocess.run(
            [str(loader), "--library-path", ":".join(map(str, folders)), *arguments],
            capture_output=True,
            text=True,
            check=False,
            env={"PYTHONHOME": str(root / "usr"), "PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8"},
        )
    except OSError as error:
        raise ImageError(
            f"{loader} does not run here ({error.strerror}); "
            "a tree of this machine's architecture expected"
        ) from error
    if done.returncode != 0:
        raise ImageError(f"{arguments[0]} of {root} failed: {done.stderr.strip()[-500:]}")
    return done.stdout
