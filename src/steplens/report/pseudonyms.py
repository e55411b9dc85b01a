"""Pseudonyms for what a user named: the same name has the same one everywhere in a report, and another in every other report.

What is kept is known not to come from the user: names of frameworks by their form, frames of Python's and the frameworks' own
files where the file and the name are really there, words that steplens itself uses. Everything else is replaced.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

from steplens import json_text
from steplens.analysis.lines import LIBRARY, UNCLEAR, USER, frame_owner
from steplens.report import kernel_names, known
from steplens.trace.classify import CATEGORIES, category_of
from steplens.trace.schema import DATALOADER_PREFIX, MODULE_PREFIX, OPTIMIZER_STEP_PREFIX, STEP_PREFIX

_NAMESPACES = (
    "aten|prim|prims|c10|c10d|_c10d_functional|_c10d_functional_autograd|autograd|torch|quantized|inductor|sparse|mkldnn|npu|hccl"
)
_OPERATOR = re.compile(
    rf"^(({_NAMESPACES})::([a-z_]+::)*[A-Za-z_]\w*|acl(nn|rt|op)[A-Z]\w*|acl_\w+|torch(\.[a-z_]+)+::\w+|[A-Z]\w*Backward\d+"
    r"|(torch::)?(autograd::)?(AccumulateGrad|CopyBackwards|CopySlices|GraphRoot)"
    r"|detach_?|empty_tensor|wait_event|record_event|destroy_event|record_param_comms"
    r"|Optimizer\.closure|DistributedDataParallel\.forward|PyTorch Profiler \(\d+\))$"
)
#: what frameworks put before a name
_PREFIXES = (
    "autograd::engine::evaluate_function: ", MODULE_PREFIX, DATALOADER_PREFIX, OPTIMIZER_STEP_PREFIX, "Optimizer.zero_grad#",
)  # fmt: skip
_BACKWARD = re.compile(r"^(.*?)(Backward)$", re.DOTALL)
_STEP = re.compile(rf"^{re.escape(STEP_PREFIX)}\d+$")
_LIBRARY_RANGE = re.compile(r"^(gloo|nccl|hccl|mpi|ucc|c10d|hcom|Hccl)(::|:|_|)([A-Za-z_]+)([\d_]*)$")
_COLLECTIVE = frozenset(
    (
        "all", "reduce", "allreduce", "gather", "allgather", "scatter", "reducescatter", "alltoall", "broadcast", "send",
        "recv", "receive", "barrier", "into", "tensor", "base", "coalesced", "to", "v", "object", "monitored", "batch",
        "group", "start", "end", "single", "out",
    )
)  # fmt: skip
_CUDA_CALL = re.compile(
    r"^(AscendCL@|Node@|Model@|Runtime@)?((cuda|cu|hip|acl|aclrt|aclnn|aclop|hccl|nccl)[A-Z][A-Za-z0-9]*(_(v\d+|pt[ds]z?|spt))*"
    r"|launch|node|runtime|model|communication)$"
)
#: calls that prepare operators of an NPU: those of the types that vendors and customers bring, which have the type's name
_PREPARATION = re.compile(r"^([A-Z][A-Za-z0-9]*_(Tiling|InferShape)|opCompile|[Ii]nferShape)$")
#: what an unknown call must still be known by
_PREPARES = re.compile(r"(?i)_tiling$|infershape")
_LONGEST_CALL = 200
#: the folder below which a frame with a new name counts as its owner's code; the first that will do
_FOLDERS = {USER: ("", "/"), UNCLEAR: ("", "/", "/torch/"), LIBRARY: ("", "lib/python3/")}
#: words of which the names of a vendor's runtime consist: ``KernelLaunchWithHandle_Big``
_RUNTIME_WORD = frozenset(
    (
        "Addr", "Async", "Big", "Compile", "Context", "Copy", "Create", "Ctx", "Current", "Destroy", "Device", "Event", "Ex",
        "Ffts", "Finish", "Free", "Get", "Handle", "Huge", "Kernel", "Launch",
        "Malloc", "Mem", "Memcpy", "Memset", "Model", "Notify",
        "Overflow", "Plus", "Query", "Record", "Reset", "Set", "Stars", "Status", "Stream", "Sync", "Synchronize", "Task", "Wait",
        "With",
    )
)  # fmt: skip
_NPU_TASK = re.compile(
    r"^((trans_)?[A-Z][A-Za-z0-9]*(_\d+)*(-op\d+)?|FusionOp(_[A-Z][A-Za-z0-9]*)+|[A-Z][A-Za-z0-9]*_MemSet"
    r"|(EVENT|NOTIFY|MEMCPY|REDUCE|PROFILING|KERNEL|MODEL)(_(RECORD|WAIT|RESET|ASYNC|V2|ENABLE|DISABLE|AICORE|AICPU|EXECUTE))+)$"
)
#: columns of vendors' tables that hold names or types of tasks
_NAMES_TASK = re.compile(
    r"(?i)^((full_?)?(op|kernel|task|node|operator|subgraph|aicpu)?[_ ]?(full_?)?(name|type)|owner|op|operator)$"
)
#: words by which a name counts to a category
_SAMPLES = (
    "mul", "mm", "convolution", "softmax", "layer_norm", "sum", "transpose", "embedding", "max_pool2d", "dropout", "empty",
    "copy_", "nll_loss", "scaled_dot_product_attention", "all_reduce", "synchronize", "index_select", "sort", "adam",
    "item", "lstm",
)  # fmt: skip
#: words that analyses look for in names: they are the frameworks', and stay beside a pseudonym so that answers are the same
_TELLING = re.compile(
    r"all_?reduce|reduce_?scatter|broadcast|get_?next|_foreach_|_fused_|fused|multi_tensor|tensorop|simt|sgemm|tf32|f16|half|s1688"
    r"|h884|wgmma|ampere_|volta_|turing_|dataloader|syncbatchnorm",
    re.IGNORECASE,
)
_DEVICE_TYPE = re.compile(r"^[A-Z][A-Za-z0-9]*$")
_FRAME = re.compile(r"^(?P<file>[^<(]*\.py)(\((?P<line>\d+)\): |:(?P<line2>\d+)\()(?P<function>.*?)(?P<close>\)?)$", re.DOTALL)
_BUILT_IN = re.compile(r"^<built-in (?P<kind>function|method) (?P<name>\w+)(?: of (?P<owner>[\w.]+) object)?>$")
#: threads of PyTorch by their names, as the system cuts them to 15 characters
_THREAD = re.compile(
    r"^(python[\d.]*|([Tt]hread|stream|Device) \d+ ?|pt_(autograd_\d+|main_thread|data_(worker|pin)(_\d+)?|tcpstore_uv|kineto"
    r"|(nccl|gloo)_(watchd\w?g|heartbt|runloop)|elastic))$"
)
#: paths of a system are no longer
_LONGEST_FILE = 4096
_WORD = re.compile(r"[^\W\d]\w*")
#: addresses of machines: of four numbers, with colons (IPv6, network cards)
_ADDRESS = re.compile(r"(?<![\w.:])(\d{1,3}(\.\d{1,3}){3}|[0-9a-fA-F]{0,4}(:[0-9a-fA-F]{0,4}){4,7})(?![\w.])")
_PSEUDONYM = re.compile(r"^address_[a-z2-7]{8}$")
#: types of data as frameworks and vendors write them, and units
_TYPE_WORDS = frozenset(
    (
        "c10", "Half", "BFloat16", "Float", "Double", "Long", "Int", "Short", "Char", "Byte", "Bool", "float",
        "double", "int", "long", "short", "signed", "unsigned", "char", "bool", "complex", "Scalar", "ScalarList",
        "TensorList", "GenericList", "Tensor", "None", "True", "False", "FLOAT", "FLOAT16", "BF16", "BFLOAT16",
        "DT_BF16", "DT_FLOAT16", "DT_FLOAT", "BOOL", "DOUBLE", "HALF", "INT8", "INT16", "INT32", "INT64", "UINT8",
        "UINT16", "UINT32", "UINT64", "FP16", "FP32", "FP64", "COMPLEX64", "COMPLEX128", "UNDEFINED", "STRING",
        "Float8_e4m3fn", "Float8_e5m2", "NULL", "NUMBER", "TENSOR", "B", "KB", "MB", "GB", "MHz", "s", "ms", "us",
        "ns", "value", "batches",
    )
)  # fmt: skip


class Pseudonyms:
    """Replaces names.

    Args:
        key: of the pseudonyms; random by default, and kept nowhere, so that nobody can try names.
    """

    def __init__(self, key: bytes | None = None) -> None:
        self._key = key or secrets.token_bytes(32)

    def name(self, kind: str, text: str) -> str:
        """The pseudonym of a name; an empty name has none."""
        if not text:
            return text
        digest = hmac.new(self._key, f"{kind}\0{text}".encode(errors="surrogatepass"), hashlib.sha256).digest()
        return f"{kind}_{base64.b32encode(digest[:5]).decode().lower()}"

    def operator(self, text: str) -> str:
        """The name of a framework's call; ranges of users are ``range``."""
        if _OPERATOR.match(text) or _STEP.match(text) or _is_collective(text):
            return text
        for prefix in _PREFIXES:
            if text.startswith(prefix):
                rest = text.removeprefix(prefix)
                if prefix == MODULE_PREFIX:
                    return prefix + self.module_name(rest)
                return self._alike(text, prefix + self._rest(rest, prefix))
        backward = _BACKWARD.match(text)
        if backward and backward[1] and not _BACKWARD.match(backward[1]):
            return self._alike(text, self.name("operator", backward[1]) + backward[2])
        return self._alike(text, self.name("operator", text))

    def range(self, text: str) -> str:
        """The name of a range that the user or the framework opened."""
        named = text.startswith((*_PREFIXES[1:], "DistributedDataParallel.forward")) or _STEP.match(text) or _is_collective(text)
        return self.operator(text) if named else self._alike(text, self.name("region", text))

    def _rest(self, text: str, prefix: str) -> str:
        if prefix == _PREFIXES[0]:
            return self.name("operator", text) if text.startswith(_PREFIXES[0]) else self.operator(text)
        # Class.method: classes of PyTorch stay
        first, dot, last = text.rpartition(".")
        methods = {"step", "zero_grad", "__next__"}
        return f"{self.class_name(first)}{dot}{last if last in methods else self.name('function', last)}"

    def _alike(self, text: str, pseudonym: str) -> str:
        """A pseudonym that counts to the same category as the name."""
        category = category_of(text)
        stems = dict.fromkeys((_with_telling(text, pseudonym), pseudonym))
        candidates = (one for stem in stems for one in (stem, *(f"{stem}_{word}" for word in (category, *_SAMPLES))))
        return next((one for one in candidates if category_of(one) == category), pseudonym)

    def npu_task(self, text: str) -> str:
        """The name of a task of an NPU: types of the vendor, which may have a number, stay."""
        return text if _NPU_TASK.match(text) else self.task(text)

    def task(self, text: str) -> str:
        """The name of a device task."""
        if _OPERATOR.match(text) or _is_collective(text):
            return text
        if kernel_names.is_kernel(text):
            return self._alike(text, kernel_names.replaced(text, self.name))
        if "/" in text:
            # scopes of MindSpore: Default/network-Net/conv1-Conv2d/Conv2d-op89
            *scopes, last = text.split("/")
            return "/".join(
                [*map(self.scope, scopes), last if re.match(r"^[A-Z][A-Za-z0-9]*-op\d+$", last) else self.scope(last)]
            )
        return self._alike(text, self.name("task", text))

    def scope(self, text: str) -> str:
        """A part of a path of scopes."""
        if text in ("Default", "Gradients", "recompute_Default", ""):
            return text
        return _with_telling(text, self.name("scope", text))

    def module(self, text: str) -> str:
        """A path of modules, part by part, so that what lies inside what stays."""
        return ".".join(one if one.isdecimal() or one in ("DistributedDataParallel", "module") else self.name("module", one)
                        for one in text.split("."))  # fmt: skip

    def module_name(self, text: str) -> str:
        """A module as profilers number them: ``Linear_0``."""
        stem, under, number = text.rpartition("_")
        if under and number.isdecimal():
            return f"{self.class_name(stem)}_{number}"
        return self.module(text) if "." in text else self.class_name(text)

    def class_name(self, text: str) -> str:
        """A class; those of PyTorch's modules, optimizers and loaders stay."""
        return text if text in known.classes() else _with_telling(text, self.name("class", text))

    def frame(self, text: str) -> str:
        """A frame of Python, or a call of a module."""
        if text.startswith(MODULE_PREFIX):
            return MODULE_PREFIX + self.module_name(text.removeprefix(MODULE_PREFIX))
        built_in = _BUILT_IN.match(text)
        if built_in:
            if known.is_built_in(built_in["owner"], built_in["name"]):
                return text
            return f"<built-in {built_in['kind']} {self.name('function', text)}>"
        found = _FRAME.match(text)
        if not found:
            return self.name("frame", text)
        file, function = self.file(found["file"]), found["function"]
        if not known.has_word(file, function):
            function = self.name("function", function)
        told = f"{file}({found['line']}): {function}{found['close']}" if found["line"] else f"{file}:{found['line2']}({function})"
        owner = frame_owner(text)
        return next((folder + told for folder in _FOLDERS[owner] if frame_owner(folder + told) == owner), told)

    def stack(self, text: str) -> str:
        """A call stack: frames with semicolons between them."""
        return ";".join(map(self.frame, text.split(";")))

    def file(self, text: str) -> str:
        """A file of Python code; of Python's own and the frameworks' what follows their folder."""
        path = text.replace("\\", "/")
        for place in range(len(parts := path.split("/")) if len(path) <= _LONGEST_FILE else 0):
            rest = "/".join(parts[place:])
            if known.library_text(rest) is not None:
                # as it was, but for where it is installed
                return rest
        package = re.search(r"(^|/)(site-packages|dist-packages)/", path)
        library = re.match(rf"^({'|'.join(known.LIBRARIES)})/", path)
        before = "site-packages/" if package else f"{library[1]}/" if library else ""
        return f"{before}{self.name('file', text)}.py"

    def words(self, text: str) -> str:
        """Text in which the words of steplens stay, and all others are replaced."""
        vocabulary = known.vocabulary()
        text = _ADDRESS.sub(lambda found: self.name("address", found[0]), text)

        def told(found: re.Match[str]) -> str:
            word = found[0]
            return word if len(word) == 1 or word in vocabulary or _PSEUDONYM.match(word) else self.name("word", word)

        return _WORD.sub(told, text)

    def types(self, text: str) -> str:
        """Types of data and units; what is none of them goes as by ``words``."""
        return text if set(_WORD.findall(text)) <= _TYPE_WORDS else self.words(text)

    def measure(self, text: str) -> str:
        """What a source measures: ``io_utilization`` is made of words that steplens knows."""
        return text if set(_WORD.findall(text.replace("_", " "))) <= known.vocabulary() else self.words(text)

    def values(self, value: Any) -> Any:
        """A JSON value with all of its texts replaced as by ``words``."""
        if isinstance(value, str):
            return self.words(value)
        if isinstance(value, list):
            return [self.values(one) for one in value]
        if isinstance(value, dict):
            return {self.words(name): self.values(one) for name, one in value.items()}
        return value

    def record(self, text: str) -> str:
        """A JSON document, as text, treated as by ``values``; what is no JSON as by ``words``."""
        try:
            return json.dumps(self.values(json_text.own(text)))
        except (ValueError, RecursionError):
            return self.words(text)

    def vendor_record(self, text: str) -> str:
        """A row of a vendor's table: names and types of device tasks as by ``npu_task``, all else as by ``record``."""
        try:
            return json.dumps(self._vendor_values(json_text.own(text), names=False))
        except (ValueError, RecursionError):
            return self.words(text)

    def _vendor_values(self, value: Any, *, names: bool) -> Any:
        if isinstance(value, str):
            if value.startswith(("{", "[")):
                return self.vendor_record(value)
            is_name = (names and _NPU_TASK.match(value)) or re.match(r"^(Default|Gradients|recompute_Default)/[\w./-]+$", value)
            return self.npu_task(value) if is_name else self.words(value)
        if isinstance(value, list):
            return [self._vendor_values(one, names=names) for one in value]
        if isinstance(value, dict):
            named = {name: bool(_NAMES_TASK.search(name)) for name in value}
            return {self.words(name): self._vendor_values(one, names=named[name]) for name, one in value.items()}
        return value

    def path(self, kind: str, path: Path) -> Path:
        """A path on the disk, all of it."""
        return Path(self.name(kind, str(path)))

    def thread(self, text: str) -> str:
        """What a thread is called: ``thread 12 (pt_autograd_0)``."""
        found = re.match(r"^thread (\d+) \((.*)\)$", text, re.DOTALL)
        if found:
            return f"thread {found[1]} ({self._thread(found[2])})"
        return self._thread(text)

    def _thread(self, text: str) -> str:
        return text if _THREAD.match(text) else self.name("thread", text)

    def device_type(self, text: str) -> str:
        """The type of a device task, as the vendor names it: ``MatMulV2``."""
        if _DEVICE_TYPE.match(text) or text in CATEGORIES or self.npu_task(text) == text:
            return text
        return self._alike(text, self.name("task", text))

    def category_or_task(self, text: str) -> str:
        """The type of a task of a GPU: its category, which steplens gives it, or else its name."""
        return text if text in (*CATEGORIES, "Memcpy", "Memset") else self.task(text)

    def call(self, text: str) -> str:
        """A call of a runtime or driver."""
        if _CUDA_CALL.match(text) or _PREPARATION.match(text) or _is_collective(text) or _is_of_runtime(text):
            return text
        prepares = _PREPARES.search(text)
        return self.words(text) if prepares is None else f"{self.name('call', text)}{prepares[0]}"


def _is_collective(text: str) -> bool:
    found = _LIBRARY_RANGE.match(text)
    return bool(found) and all(word.lower() in _COLLECTIVE for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", found[3]))  # type: ignore[index]


def _with_telling(text: str, pseudonym: str) -> str:
    """A pseudonym with the words of the name by which analyses know what it does."""
    words = {word.lower(): word for word in _TELLING.findall(text)}
    return "_".join([pseudonym, *(word for low, word in words.items() if low not in pseudonym.lower())])


def _is_of_runtime(text: str) -> bool:
    words = re.findall(r"[A-Z][a-z]+", text)
    return len(text) <= _LONGEST_CALL and set(words) <= _RUNTIME_WORD and "".join(words) == text.replace("_", "") != ""


Replace = Callable[[str], str]
