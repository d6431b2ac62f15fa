"""One run of the command line: where results, messages and progress go."""

from __future__ import annotations

import contextlib
import ctypes
import json
import logging
import os
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rich.console import Console


class NobodyReadsError(Exception):
    """The reader of stdout has gone. An error of our own: rich and typer end the process with the code of a failed check."""


@dataclass(slots=True, kw_only=True)
class Session:
    """Settings of one run. Results go to stdout, everything else to stderr."""

    verbose: bool = False

    def set_verbose(self) -> None:
        """Show autostream's log and full tracebacks on stderr."""
        self.verbose = True
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
        logger = logging.getLogger("autostream")
        logger.handlers = [handler]
        logger.setLevel(logging.DEBUG)

    def set_brief(self) -> None:
        """Show autostream's warnings on stderr, one line each, unless somebody handles its log already."""
        logger = logging.getLogger("autostream")
        if not logger.hasHandlers():
            logger.addHandler(_OneLine(logging.WARNING))

    def console(self) -> Console:
        """Return the console that results are printed to."""
        return _Console(file=sys.stdout, highlight=False, soft_wrap=False)

    def print_json(self, data: Any) -> None:
        """Print one JSON document on stdout."""
        self.print_text(json.dumps(data, sort_keys=True, indent=1))

    def print_text(self, text: str) -> None:
        """Print a text on stdout as it is."""
        try:
            sys.stdout.write(text if text.endswith("\n") else text + "\n")
            sys.stdout.flush()
        except BrokenPipeError as error:
            raise NobodyReadsError from error

    def tell(self, text: str) -> None:
        """Print a message for the user on stderr."""
        sys.stderr.write(f"{text}\n")

    def complain(self, text: str, error: BaseException | None = None) -> None:
        """Print one line that says what is wrong on stderr; with --verbose the traceback before it."""
        if self.verbose and error is not None:
            traceback.print_exception(error)
        self.tell(f"autostream: error: {' '.join(text.split())}")

    def abandon_stdout(self) -> None:
        """Give up a stdout whose reader has gone, so that Python does not complain at exit."""
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

    @contextlib.contextmanager
    def working(self, text: str) -> Iterator[None]:
        """Keep stdout clean while libraries and user code run, and show progress where somebody watches."""
        with _stdout_to_stderr(), _progress(text):
            yield


class _OneLine(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        """Print the message without the traceback that may come with it."""
        sys.stderr.write(f"autostream: {record.levelname.lower()}: {' '.join(record.getMessage().split())}\n")


class _Console(Console):
    def on_broken_pipe(self) -> None:
        raise NobodyReadsError


@contextlib.contextmanager
def _progress(text: str) -> Iterator[None]:
    if not sys.stderr.isatty():
        yield
        return
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(file=sys.stderr), transient=True) as progress:
        progress.add_task(text)
        yield


@contextlib.contextmanager
def _stdout_to_stderr() -> Iterator[None]:
    """Send what Python code and native libraries print to stderr."""
    sys.stdout.flush()
    with contextlib.redirect_stdout(sys.stderr):
        try:
            kept = os.dup(1)
        except OSError:  # the process has no stdout
            yield
            return
        os.dup2(2, 1)
        try:
            yield
        finally:
            if os.name == "posix":
                ctypes.CDLL(None).fflush(None)  # what C code has printed but not yet written
            os.dup2(kept, 1)
            os.close(kept)
