"""The offline host brought up for real, each time in a process of its own."""

from __future__ import annotations

import signal
import sys
import textwrap
from pathlib import Path
from types import ModuleType

import pytest

from autostream import offline
from autostream.errors import OfflineError
from autostream.offline import detect, ge_core, host
from tests.offline import processes

pytestmark = pytest.mark.skipif(
    offline.why_unavailable() is not None or offline.has_cann(), reason="needs torch_npu, and no CANN"
)


def test_processes_and_threads_starting_together_share_one_cache_entry(tmp_path: Path) -> None:
    code = """
        from concurrent.futures import ThreadPoolExecutor
        from autostream import offline
        with ThreadPoolExecutor(3) as pool:
            started = [pool.submit(offline.activate) for _ in range(3)]
        assert [future.result() for future in started] == [None] * 3
        import torch, torch_npu, torchair
        print(torch.ops.npu.npu_swiglu.default._schema)
    """
    both = [processes.start(code, AUTOSTREAM_CACHE=str(tmp_path)) for _ in range(2)]
    outputs = [processes.finish(process) for process in both]
    assert outputs == ["npu::npu_swiglu(Tensor input, int dim=-1) -> Tensor\n"] * 2  # and nothing else was printed
    entries = [path.name for path in (tmp_path / "offline").iterdir() if path.is_dir()]
    assert len(entries) == 1
    assert entries[0].startswith("torch_npu-")


def test_process_stays_usable() -> None:
    output = processes.run(
        """
        import os, signal
        os.environ["ASCEND_HOME_PATH"] = "/nowhere"  # left over from an uninstalled CANN
        from autostream import offline

        before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
        offline.activate()
        offline.activate()
        assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
        assert os.environ["ASCEND_HOME_PATH"] == "/nowhere"
        assert not offline.has_cann()  # the stand-ins do not answer for CANN
        try:
            os.kill(os.getpid(), signal.SIGINT)
            signal.sigtimedwait([], 5)
        except KeyboardInterrupt:
            print("interrupted")

        import torch
        model, x = torch.nn.Linear(4, 4), torch.randn(2, 4)
        assert torch.equal(torch.compile(model, backend="aot_eager")(x), model(x))
        assert not torch.npu.is_available()

        # What models on the CPU need beside: torch_npu replaces these by what starts a device.
        optimiser = torch.optim.Adam(model.parameters())
        torch.utils.checkpoint.checkpoint(model, x.requires_grad_(), use_reentrant=True).sum().backward()
        optimiser.step()
        with torch.profiler.profile() as profile:
            model(x)
        assert any(event.key == "aten::addmm" for event in profile.key_averages())
        rows = torch.utils.data.TensorDataset(torch.arange(4))
        assert sum(int(batch.sum()) for (batch,) in torch.utils.data.DataLoader(rows, num_workers=1)) == 6
        print(callable(torch.ops.air.wait_tensor))
        """
    )
    assert output.splitlines() == ["interrupted", "True"]


def test_failed_import_of_torch_npu_before_is_mended() -> None:
    output = processes.run(
        """
        try:
            import torch_npu
        except ImportError as error:
            assert "cannot open shared object file" in str(error)
        from autostream import offline
        offline.activate()
        import torch_npu
        print(torch_npu.__version__)
        """,
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )
    assert output.strip() == offline.torch_npu_version()


def test_failed_import_of_torch_before_asks_for_a_new_process() -> None:
    output = processes.run(
        """
        try:
            import torch
        except RuntimeError as error:
            assert "Failed to load the backend extension" in str(error)
        try:
            from autostream import offline
            offline.activate()
        except Exception as error:
            print(type(error).__name__, error)
        """,
        TORCH_DEVICE_BACKEND_AUTOLOAD=None,
    )
    assert output.startswith("OfflineError")
    assert "new process with TORCH_DEVICE_BACKEND_AUTOLOAD=0" in output


def test_sigterm_ends_a_process_as_before() -> None:
    process = processes.start("""
        import os, signal, time
        from autostream import offline
        offline.activate()
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)
    """)
    process.communicate(timeout=300)
    assert process.returncode == -signal.SIGTERM


def test_uncaught_exception_is_reported_as_before() -> None:
    process = processes.start("""
        from autostream import offline
        offline.activate()
        raise ValueError("of the user")
    """)
    output, errors = process.communicate(timeout=300)
    assert (process.returncode, output) == (1, "")
    assert errors.splitlines()[-1] == "ValueError: of the user"


def test_what_is_missing_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "_active", False)
    monkeypatch.setattr(detect, "package_folder", lambda: None)
    with pytest.raises(OfflineError, match=r"autostream\[npu\]"):
        host.activate()


def test_import_that_fails_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise ImportError("undefined symbol: aclNew\nmore")

    monkeypatch.setattr(host, "_active", False)
    monkeypatch.setattr(detect, "why_unavailable", lambda: None)
    monkeypatch.setattr(host, "_import_on_standins", fail)
    with pytest.raises(
        OfflineError, match=r"ImportError: undefined symbol: aclNew\).*new one with TORCH_DEVICE_BACKEND_AUTOLOAD=0"
    ):
        host.activate()
    assert not host._active


def test_where_cann_is_no_standin_is_made(tmp_path: Path) -> None:
    """With CANN's folder there, the real import is tried and its own error is shown: nothing was stood in for."""
    code = """
        from autostream import offline
        assert offline.has_cann() and offline.why_unavailable() is None
        try:
            offline.activate()
        except offline.host.OfflineError as error:
            print(error)
    """
    output = processes.run(
        textwrap.dedent(code),
        ASCEND_HOME_PATH=str(tmp_path),
        AUTOSTREAM_CACHE=str(tmp_path / "cache"),
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )
    assert "cannot open shared object file" in output
    assert not (tmp_path / "cache").exists()


def test_other_output_of_the_import_is_passed_on(capsys: pytest.CaptureFixture[str]) -> None:
    with host._quiet_import():
        sys.stdout.write("Warning: ASCEND_HOME_PATH environment variable is not set.\nsomething else\n")
    assert capsys.readouterr().out == "something else\n"


def test_converted_graph_refuses_to_run() -> None:
    graph = ge_core.GraphBase("graph_1")
    graph.load(b"", {})
    graph.compile()
    with pytest.raises(OfflineError, match="'graph_1' was converted offline; running it needs CANN and an Ascend NPU"):
        graph.run([], [], None)


def test_what_another_version_replaces_is_put_back_too(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    module = ModuleType("torch_of_another_version")
    exec(  # a class knows the module that it is defined in by this name
        "def pick(): return 'cpu'\nclass Loader:\n    kind = 'cpu'\n    @classmethod\n    def start(cls): return cls.kind\n",
        vars(module),
    )
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(host, "_CPU_MODULES", (module.__name__, "torch.of_no_version"))
    before = (module.pick, module.Loader, dict(vars(module.Loader)))
    with caplog.at_level("DEBUG", logger="autostream.offline.host"), host._torch_kept():
        module.pick, module.Loader.kind = (lambda: "npu"), "npu"
        module.Loader.start = classmethod(lambda cls: "npu")
        module.added = "stays"
    assert (module.pick, module.Loader, dict(vars(module.Loader))) == before
    assert (module.pick(), module.Loader.start(), module.added) == ("cpu", "cpu", "stays")
    assert "no module torch.of_no_version" in caplog.text and "put back Loader.start" in caplog.text


def test_a_torch_without_the_profilers_function_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch.autograd

    monkeypatch.delattr(torch.autograd, "_supported_activities")
    with host._torch_kept():
        pass
    assert not hasattr(torch.autograd, "_supported_activities")
