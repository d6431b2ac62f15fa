"""Automatic multi-stream scheduling for PyTorch graphs on Ascend NPUs.

In a process that runs on an NPU:

compile(model, *, chip, profile, options, **torch_compile_kwargs)
    the model compiled by torch.compile, with every graph of it scheduled where that gains; returns what torch.compile returns
StreamPass(*, chip, profile, options, cost_model)
    the pass for ``config.post_grad_custom_post_pass`` (or the pre slot) of a TorchAir configuration of your own
pass_
    a StreamPass with default options
reports()
    the reports of the graphs compiled in this process, newest last: autostream.report.Document, plain data

Anywhere, without an NPU:

schedule(program, example_inputs, *, example_kwargs, chip, profile, options, what_if)
    the program scheduled, as a ScheduleResult
schedule_dump(path, *, profile, chip, options)
    a plan made of the Ascend IR dump of a compiled graph, as a DumpPlan
inspect(program, example_inputs, *, example_kwargs, chip, semantics, suppressions)
    what a program with streams is found to do, as an Inspection
check(program, example_inputs, *, example_kwargs, chip, semantics, suppressions)
    the findings of inspect alone: autostream.program.Finding
lower(program, example_inputs, *, example_kwargs, chip, profile, options)
    the Ascend IR of the scheduled program, as text
offline.activate()
    makes torch_npu, torch.ops.npu and torchair importable where CANN is missing

What they take and give:

Options(**values)
    the options: help(autostream.Options) explains them one by one; a mapping does wherever options are taken
ScheduleResult
    of schedule: verdict, report, graph_module, program (what was read back of it), findings, save(folder), lower(), and more
DumpPlan
    of schedule_dump: verdict, report, nodes (stream and waits of each), rewritten (the dump with the plan in it), save(folder)
Inspection
    of inspect: programs (on each level that could be read), findings, and the suppressed ones
Verdict
    accepted or declined, a code, the reason, and the simulated times it rests on
AutostreamError
    base class of what is raised on purpose; the others are in autostream.errors

``help(autostream.schedule)`` and so on tell the rest: defaults, units, errors. What to plug in (prices, strategies) is shown in
notebooks/5_extend.ipynb. Names are loaded on first use, so importing the package does not import torch.
"""

from __future__ import annotations

import importlib
import importlib.metadata
from typing import TYPE_CHECKING, Any

from autostream.offline.detect import prepare_environment

if TYPE_CHECKING:
    from autostream.api import (
        ScheduleResult,
        check,
        compile,
        inspect,
        lower,
        reports,
        schedule,
    )
    from autostream.dumps import DumpPlan, schedule_dump
    from autostream.errors import AutostreamError
    from autostream.inspection import Inspection
    from autostream.options import Options
    from autostream.stream_pass import StreamPass, pass_
    from autostream.verdict import Verdict

# With torch_npu installed and no CANN, `import torch` fails unless its autoload is switched off first.
prepare_environment()

_HOME = {
    "AutostreamError": "errors",
    "DumpPlan": "dumps",
    "Inspection": "inspection",
    "Options": "options",
    "ScheduleResult": "api",
    "StreamPass": "stream_pass",
    "Verdict": "verdict",
    "check": "api",
    "compile": "api",
    "inspect": "api",
    "lower": "api",
    "pass_": "stream_pass",
    "reports": "api",
    "schedule": "api",
    "schedule_dump": "dumps",
}

__all__ = [
    "AutostreamError",
    "DumpPlan",
    "Inspection",
    "Options",
    "ScheduleResult",
    "StreamPass",
    "Verdict",
    "check",
    "compile",
    "inspect",
    "lower",
    "pass_",
    "reports",
    "schedule",
    "schedule_dump",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return importlib.metadata.version(__name__)
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
