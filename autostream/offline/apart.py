"""Replacements in modules of others that one thread sees, while every other thread goes on with what was there."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any


@contextlib.contextmanager
def replaced_here(module: ModuleType, name: str, ours: Callable[..., Any]) -> Iterator[None]:
    """Have calls of ``module.name`` go to `ours` in this thread, and only in this one, which may enter again.

    A user's own compilation runs the same code at the same time in another thread, and must not notice. Who enters has to hold
    a lock that all who do so share (`host.exclusive`), so that what is put back is what was found.
    """
    theirs, me = getattr(module, name), threading.get_ident()

    def chosen(*args: Any, **kwargs: Any) -> Any:
        return (ours if threading.get_ident() == me else theirs)(*args, **kwargs)

    setattr(module, name, chosen)
    try:
        yield
    finally:
        setattr(module, name, theirs)
