"""What PyTorch is told of a window: the object that holds its recording, and what is added to the trace."""

from __future__ import annotations

import importlib
import inspect
import json
import re
from typing import Any

from steplens.collect.common import log, metadata
from steplens.collect.common.health import WARNING, Health
from steplens.collect.common.recording_settings import RecordingSettings
from steplens.collect.pytorch.window import Window
from steplens.collect.torch_internals import child_threads, other_profilers
from steplens.common.options import ProfilerActivity

#: What Kineto does not get of an id: it reads the id as a line of its configuration, where a line break or "=" ends the program,
#: and writes it into its file as it is. The files of steplens have the whole id.
_NOT_IN_KINETO = re.compile(r"[^A-Za-z0-9 .,:;/@+_-]")


class KinetoArguments:
    """Translates what is to be recorded; a part of a session."""

    settings: RecordingSettings
    _health: Health
    #: what Kineto's trace gets when a window opens, by key
    preset: dict[str, Any]
    window: Window | None

    def _new_kineto(self, window: Window) -> Any:
        """PyTorch's object that holds a session, with arguments that it knows; RuntimeError while another profiler records."""
        other_profilers.refuse_a_second()
        profiler: Any = importlib.import_module("torch.autograd.profiler")
        config_type: Any = importlib.import_module("torch._C._profiler")._ExperimentalConfig
        signature = str(config_type.__init__.__doc__)
        config: dict[str, Any] = {}
        # Skips building events at stop, which halves its time; stacks and categories of memory come from those events.
        if "trace_only" in signature and not self.settings.with_stack and not self.settings.categorises_memory:
            config["trace_only"] = True
        if self._needs_all_threads():
            if "profile_all_threads" in signature:
                config["profile_all_threads"] = True
                if self.settings.profile_memory:
                    message = "Kineto cannot record memory while it records all threads."
                    self._health.report("not_collected", WARNING, message, unsafe="memory")
            else:
                self._health.add("not_collected", WARNING, "This version of PyTorch cannot record child threads.")
        window.ends_anywhere = bool(config.get("profile_all_threads"))
        window.threads = self._joinable_threads(all_threads=window.ends_anywhere)
        arguments: dict[str, Any] = {
            **self._profiler_arguments(),
            "experimental_config": config_type(**config),
            "custom_trace_id_callback": lambda: _NOT_IN_KINETO.sub("_", window.trace_id),
        }
        accepted = inspect.signature(profiler.profile.__init__).parameters
        kineto = profiler.profile(**{name: value for name, value in arguments.items() if name in accepted})
        other_profilers.take_recording(kineto)
        other_profilers.register_session(self)
        return kineto

    def _needs_all_threads(self) -> bool:
        """Whether Kineto has to record every thread of the process, so that those that asked are among them."""
        return child_threads.needs_all_threads(self.settings.with_stack)

    def _joinable_threads(self, *, all_threads: bool) -> child_threads.Joinable:
        """What threads of the program that ask to be recorded join."""
        thread_options = {**self.settings.switches, "cpu": ProfilerActivity.CPU in self.settings.activities}
        return child_threads.Joinable(thread_options, self._health, all_threads)

    def _kineto_switches(self) -> dict[str, bool]:
        """What Kineto is asked for, by the names of the options."""
        return self.settings.switches

    def _profiler_arguments(self) -> dict[str, Any]:
        """What is recorded, in the words of PyTorch's object."""
        return {
            "use_cpu": ProfilerActivity.CPU in self.settings.activities,
            "use_device": "cuda" if ProfilerActivity.CUDA in self.settings.activities else None,
            "use_kineto": True,
            **self._kineto_switches(),
        }

    def _describe_in_trace(self) -> None:
        """Add what ``torch.profiler`` adds to a trace, for tools that read Kineto's file directly."""
        autograd: Any = importlib.import_module("torch.autograd")
        for key, value in self._recorded_metadata().items():
            autograd._add_metadata_json(key, json.dumps(value, default=str))

    def _recorded_metadata(self) -> dict[str, Any]:
        """What is said of a window in its raw data itself, as ``torch.profiler`` does."""
        info = metadata.distributed_info()
        switches = {name: 1 for name, is_on in self.settings.switches.items() if is_on}
        return {**switches, **self.preset, **({"distributedInfo": info} if info else {})}

    def torch_options(self) -> dict[str, Any]:
        """Arguments of ``torch.autograd.profiler.profile`` for reading a saved trace, as far as this release takes them."""
        profiler: Any = importlib.import_module("torch.autograd.profiler")
        options = self._profiler_arguments()
        return {name: options[name] for name in inspect.signature(profiler.profile.__init__).parameters if name in options}

    def toggle_collection(self, enable: bool, names: list[str]) -> None:
        """Begin or cease to collect activities in the window that records.

        Args:
            enable: whether they are collected from here on.
            names: members of PyTorch's ``ProfilerActivity``.
        """
        window = self.window
        if window is None or not window.recording:
            log.warning("toggle_collection_dynamic has no effect, no window is recorded.")
            return
        if toggled := self._toggle_recording(window, enable, names):
            state = "on" if enable else "off"
            message = f"The program turned the collection of {', '.join(toggled)} {state} inside the window."
            self._health.add("not_collected", WARNING, message, unsafe="averages over steps")

    def _toggle_recording(self, window: Window, enable: bool, names: list[str]) -> list[str]:
        """Do so in a window that records; the names for which that was done."""
        activity_type: Any = importlib.import_module("torch.profiler").ProfilerActivity
        window.kineto.toggle_collection_dynamic(enable, [getattr(activity_type, name) for name in names])
        return names
