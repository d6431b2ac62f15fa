"""Stand-in shared libraries for CANN, derived from the installed torch_npu wheel itself.

torch_npu's libraries are linked BIND_NOW against CANN, so importing them needs every symbol to resolve. The list of those
symbols is read from the wheel's own undefined dynamic symbols, minus what the wheel, torch and the C/C++ runtime define.
One library defines them all (each function returns 0); the other CANN library names become empty libraries, so that the
dynamic loader finds every SONAME already loaded. A library set is compiled once per wheel and Python, into the user's cache.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import hashlib
import importlib.metadata
import importlib.util
import json
import logging
import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from autostream.errors import OfflineError

logger = logging.getLogger(__name__)

#: SONAME of the stand-in that carries the symbols; the other libraries are empty.
CARRIER = "libautostream_cann_symbols.so"
#: Written last: SHA-256 per library. A folder whose files differ from it is not used.
MANIFEST = "manifest.json"
#: Bump when the way the libraries are made changes, so that old cache entries are not reused.
_FORMAT = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkNeeds:
    """What a set of shared libraries asks of the machine: undefined symbols and SONAMEs that nothing provides."""

    symbols: tuple[str, ...]
    sonames: tuple[str, ...]


def cache_root() -> Path:
    """Return the cache folder: ``$AUTOSTREAM_CACHE``, else ``autostream`` in ``$XDG_CACHE_HOME``, else in ``~/.cache``."""
    explicit = os.environ.get("AUTOSTREAM_CACHE")
    if explicit:
        return Path(explicit).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path("~").expanduser() / ".cache") / "autostream"


def compiler_command() -> list[str]:
    """Return the C compiler to use, as an argument list.

    Raises:
        OfflineError: no C compiler is on PATH (``$CC`` is tried first, then Python's own, cc, gcc, clang).
    """
    for candidate in (os.environ.get("CC"), sysconfig.get_config_var("CC"), "cc", "gcc", "clang"):
        words = shlex.split(candidate) if candidate else []
        if words and shutil.which(words[0]):
            return words
    raise OfflineError(
        "no C compiler found: the offline host compiles a small stand-in for CANN once; install one "
        "(Debian: apt-get install gcc), or point the environment variable CC at it"
    )


def cached(package: Path) -> Path | None:
    """Return the folder of intact stand-ins for this wheel and this Python, or None. Needs no torch; reads about 200 kB."""
    folder = _folder(package)
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        intact = CARRIER in manifest and all(_sha256(folder / name) == digest for name, digest in manifest.items())
    except (OSError, ValueError):
        return None
    return folder if intact else None


def build(package: Path) -> Path:
    """Return the folder with the stand-in libraries for this wheel, compiling them on first use.

    Safe when two processes start together: one builds under a file lock, the other waits and finds the result. The folder is
    renamed into place when complete, so that a killed build leaves nothing that would be used.

    Args:
        package: folder of the installed torch_npu package; torch must be imported.

    Raises:
        OfflineError: no compiler, the compiler failed (its output is in the message), or the cache folder is not writable.
    """
    ready = cached(package)
    if ready:
        return ready
    compiler = compiler_command()
    final = _folder(package)
    try:
        final.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with _locked(final.parent / ".lock"):
            ready = cached(package)
            if ready:
                return ready
            shutil.rmtree(final, ignore_errors=True)  # damaged: nobody uses it, for nobody accepts it
            _build_in_place(compiler, link_needs(package), final)
    except OSError as error:
        raise OfflineError(
            f"cannot write the cache folder {final.parent}: {error}; set AUTOSTREAM_CACHE to a folder that can be written"
        ) from error
    return final


def preload(folder: Path) -> None:
    """Load the stand-in libraries globally, so that the dynamic loader resolves CANN's SONAMEs and symbols to them."""
    for path in [folder / CARRIER, *sorted(path for path in folder.glob("*.so*") if path.name != CARRIER)]:
        ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)


def link_needs(package: Path) -> LinkNeeds:
    """Read every shared library under `package` and return the symbols and SONAMEs that must be stood in for.

    Args:
        package: folder of the installed torch_npu package. torch must be imported: what it and this Python define is looked
            up through the dynamic loader.
    """
    from elftools.elf.dynamic import DynamicSection
    from elftools.elf.elffile import ELFFile
    from elftools.elf.sections import SymbolTableSection

    undefined: set[str] = set()
    defined: set[str] = set()
    needed: set[str] = set()
    own_names: set[str] = set()
    for path in _libraries(package):
        with path.open("rb") as stream:
            own_names.add(path.name)
            for section in ELFFile(stream).iter_sections():
                if isinstance(section, DynamicSection):
                    needed.update(str(vars(tag)["needed"]) for tag in section.iter_tags("DT_NEEDED"))
                elif isinstance(section, SymbolTableSection) and section.name == ".dynsym":
                    symbols = [symbol for symbol in section.iter_symbols() if symbol["st_info"]["bind"] != "STB_LOCAL"]
                    defined.update(symbol.name for symbol in symbols if symbol["st_shndx"] != "SHN_UNDEF")
                    # A weak reference may stay unresolved; every other one must be stood in for.
                    undefined.update(
                        symbol.name
                        for symbol in symbols
                        if symbol["st_shndx"] == "SHN_UNDEF" and symbol["st_info"]["bind"] == "STB_GLOBAL"
                    )
    torch_folder = _torch_folder()
    # The scope of the first handle is this Python with all it has loaded, that of the others torch, libstdc++ and libc.
    provided = [ctypes.CDLL(None), *(ctypes.CDLL(str(torch_folder / name)) for name in ("libtorch_python.so", "libtorch.so"))]
    return LinkNeeds(
        symbols=tuple(sorted(name for name in undefined - defined if not any(_has_symbol(lib, name) for lib in provided))),
        sonames=tuple(sorted(name for name in needed - own_names if not (torch_folder / name).is_file() and not _loads(name))),
    )


def _folder(package: Path) -> Path:
    """Return where the stand-ins for this wheel, torch, Python, machine and format belong."""
    try:
        root = cache_root()
    except RuntimeError as error:  # no home folder
        raise OfflineError(f"no cache folder: {error}; set AUTOSTREAM_CACHE to a folder that can be written") from error
    version, torch = (importlib.metadata.version(name) for name in ("torch_npu", "torch"))
    digest = hashlib.sha256(f"{_FORMAT} {version} {torch} {sys.version} {platform.machine()}".encode())
    for path in _libraries(package):
        digest.update(f"{path.relative_to(package)} {path.stat().st_size}".encode())
    return root / "offline" / f"torch_npu-{version}-{sys.implementation.cache_tag}-{digest.hexdigest()[:16]}"


def _build_in_place(compiler: list[str], needs: LinkNeeds, final: Path) -> None:
    logger.info("building stand-ins for %d CANN symbols and %d libraries in %s", len(needs.symbols), len(needs.sonames), final)
    work = Path(tempfile.mkdtemp(prefix=".building-", dir=final.parent))
    try:
        _compile(compiler, work, CARRIER, "".join(f"long {name}(void) {{ return 0; }}\n" for name in needs.symbols))
        for soname in needs.sonames:
            _compile(compiler, work, soname, "")
        manifest = {name: _sha256(work / name) for name in (CARRIER, *needs.sonames)}
        (work / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
        work.rename(final)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _compile(compiler: list[str], folder: Path, soname: str, body: str) -> None:
    options = ["-shared", "-fPIC", "-nostdlib", "-w", "-fno-builtin", f"-Wl,-soname,{soname}", "-o", str(folder / soname)]
    command = [*compiler, *options, "-x", "c", "-"]
    done = subprocess.run(command, input=body, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OfflineError(f"compiling the stand-in {soname} failed ({shlex.join(command)}): {done.stderr.strip()[-2000:]}")


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock between processes; the kernel frees it if the holder dies."""
    with path.open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def _libraries(package: Path) -> list[Path]:
    return sorted(package.rglob("*.so*"))


def _torch_folder() -> Path:
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise OfflineError("torch is not installed")
    return Path(spec.origin).parent / "lib"


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _has_symbol(library: ctypes.CDLL, name: str) -> bool:
    try:
        library[name]
    except AttributeError:
        return False
    return True


def _loads(soname: str) -> bool:
    """True if the dynamic loader finds the library by itself (already loaded, or on its path)."""
    try:
        ctypes.CDLL(soname)
    except OSError:
        return False
    return True
