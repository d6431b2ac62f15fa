"""The ``autostream`` command. Exit codes: 0 done (also when a plan was declined), 1 checked and failed, 2 bad input, 3 a defect.

Results go to stdout; messages, logs and progress to stderr. With ``--json`` stdout holds exactly one JSON document. Nothing heavy
(torch, torch_npu, the solver) is imported before a command needs it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import typer

from autostream.cli import checking, planning, pricing, reports  # noqa: F401 - each registers its commands
from autostream.cli.app import app
from autostream.cli.session import Session
from autostream.errors import AutostreamError
from autostream.offline import prepare_environment

FAILED, BAD_INPUT, DEFECT, INTERRUPTED = 1, 2, 3, 130

#: typer's base class of wrong usage; where it lives differs between versions of typer.
_UsageError: type[Exception] = typer.BadParameter.__bases__[0]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command with these arguments (default: the process's own) and return its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    session = Session()
    try:
        prepare_environment()
        code = typer.main.get_command(app)(given, prog_name="autostream", standalone_mode=False, obj=session)
        sys.stdout.flush()
    except _UsageError as error:
        session.complain(f"{error.format_message()} (see 'autostream --help')")  # type: ignore[attr-defined]
        return BAD_INPUT
    except AutostreamError as error:
        session.complain(str(error), error)
        return BAD_INPUT
    except (KeyboardInterrupt, typer.Abort):
        session.complain("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        session.abandon_stdout()
        return FAILED
    except Exception as error:
        # A defect must not look like a failed check, which is what Python's own exit code 1 would say.
        session.complain(f"defect in autostream, please report it: {type(error).__name__}: {error}", error)
        return DEFECT
    return code if isinstance(code, int) else 0
