"""The ``autostream`` command. Exit codes: 0 done (also when a plan was declined), 1 checked and failed, 2 bad input, 3 a defect.

Results go to stdout; messages, logs and progress to stderr. With ``--json`` stdout holds exactly one JSON document. Nothing heavy
(torch, torch_npu, the solver) is imported before a command needs it.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence

import typer

from autostream.cli import checking, planning, pricing, reports  # noqa: F401 - each registers its commands
from autostream.cli.app import app
from autostream.cli.session import NobodyReadsError, Session
from autostream.errors import AutostreamError
from autostream.offline import prepare_environment

BAD_INPUT, DEFECT = 2, 3
#: What a shell says of a process that was interrupted, and of one whose reader has gone: neither is a failed check.
INTERRUPTED, NOT_READ = 130, 141
#: What is wrong with where the results go, if they cannot be written there.
_UNWRITABLE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})

#: typer's base class of wrong usage; where it lives differs between versions of typer.
_UsageError: type[Exception] = typer.BadParameter.__bases__[0]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command with these arguments (default: the process's own) and return its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    session = Session()
    _open_closed_streams()
    try:
        prepare_environment()
        code = typer.main.get_command(app)(given, prog_name="autostream", standalone_mode=False, obj=session)
        sys.stdout.flush()
    except _UsageError as error:
        session.complain(f"{error.format_message()} (see '{_command(error)} --help')")  # type: ignore[attr-defined]
        return BAD_INPUT
    except AutostreamError as error:
        session.complain(str(error), error)
        return BAD_INPUT
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except (NobodyReadsError, BrokenPipeError):
        session.abandon_stdout()
        return NOT_READ
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _UNWRITABLE:
            session.abandon_stdout()
            session.complain(f"the results cannot be written: {error.strerror}", error)
            return BAD_INPUT
        # A defect must not look like a failed check, which is what Python's own exit code 1 would say.
        session.complain(f"defect in autostream, please report it: {type(error).__name__}: {error}", error)
        return DEFECT
    if code == INTERRUPTED:  # typer turns Ctrl-C into this code
        session.complain("interrupted")
    return code if isinstance(code, int) else 0


def _open_closed_streams() -> None:
    """Give a process that was started without stdout or stderr one that swallows everything: Python leaves None there."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - it stays open as long as the process


def _command(error: Exception) -> str:
    context = getattr(error, "ctx", None)
    return context.command_path if context is not None else "autostream"
