"""Pseudonyms for what a user named: the same name has the same one everywhere in a report, and another in every other report.

What is kept is public by its form or by its words, which ``steplens.report.redaction.public`` lists. Everything else is replaced.
"""

from __future__ import annotations

import base64
import builtins
import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

from steplens.analysis.tools.source_lines import LIBRARY, UNCLEAR, USER, frame_owner
from steplens.common import json_text
from steplens.report.redaction import kernel_names, public
from steplens.trace.building.classify import CATEGORIES, OTHER, category_of
from steplens.trace.schema import MODULE_PREFIX

_BACKWARD = re.compile(r"^(.*?)(Backward)$", re.DOTALL)
#: what an unknown call must still be known by
_PREPARES = re.compile(r"(?i)_tiling$|infershape")
_LONGEST_CALL = 200
#: the folder below which a frame with a new name counts as its owner's code; the first that will do
_FOLDERS = {USER: ("", "/"), UNCLEAR: ("", "/", "/torch/"), LIBRARY: ("", "lib/python3/")}
#: words by which a name counts to a category
_SAMPLES = (
    "mul", "mm", "convolution", "softmax", "layer_norm", "sum", "transpose", "embedding", "max_pool2d", "dropout", "empty",
    "copy_", "nll_loss", "scaled_dot_product_attention", "all_reduce", "synchronize", "index_select", "sort", "adam",
    "item", "lstm",
)  # fmt: skip
_FRAME = re.compile(r"^(?P<file>[^<(]*\.py)(\((?P<line>\d+)\): |:(?P<line2>\d+)\()(?P<function>.*?)(?P<close>\)?)$", re.DOTALL)
#: paths of a system are no longer
_LONGEST_FILE = 4096
_WORD = re.compile(r"[^\W\d]\w*")
#: the words of a vendor's term: "aic_mac_time", "StepTraceTime"
_TERM_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\d_a-zA-Z]+")
#: addresses of machines: of four numbers, with colons (IPv6, network cards)
_ADDRESS = re.compile(
    r"(?<!\d)(?<!\d\.)\d{1,3}(?:\.\d{1,3}){3}(?!\d|\.\d)|(?<![\w.:])[0-9a-fA-F]{0,4}(?::[0-9a-fA-F]{0,4}){4,7}(?![\w.])"
)
_PSEUDONYM = re.compile(r"^address_[a-z2-7]{8}$")
#: a token of a sentence: what stands before it, itself, what ends it
_TOKEN = re.compile(r"([(\[\"'`]*)([^\s]*?)('s|s')?([)\]\"'`,.;:!?%]*)(?=\s|$)")


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
        # chance may spell "rnn" or "fft", which would put a call into another category than its name: then the next bytes
        for first in range(0, 26, 5):
            pseudonym = f"{kind}_{base64.b32encode(digest[first : first + 5]).decode().lower()}"
            if category_of(pseudonym) == OTHER:
                break
        return pseudonym

    def operator(self, text: str) -> str:
        """The name of a framework's call; ranges of users are ``range``."""
        if public.OPERATOR.match(text) or public.STEP.match(text) or _is_collective(text):
            return text
        for prefix in (public.BACKWARD_PREFIX, MODULE_PREFIX, *public.CLASS_PREFIXES):
            if text.startswith(prefix):
                stem = text.removeprefix(prefix)
                if prefix == MODULE_PREFIX:
                    return prefix + self.module_name(stem)
                return self._match_category(text, prefix + self._name_after_prefix(stem, prefix))
        backward = _BACKWARD.match(text)
        if backward and backward[1] and not _BACKWARD.match(backward[1]):
            return self._match_category(text, self.name("operator", backward[1]) + backward[2])
        return self._match_category(text, self.name("operator", text))

    def range(self, text: str) -> str:
        """The name of a range that the user or the framework opened."""
        opened = (MODULE_PREFIX, *public.CLASS_PREFIXES, "DistributedDataParallel.forward")
        is_public = text.startswith(opened) or public.STEP.match(text) or _is_collective(text)
        return self.operator(text) if is_public else self._match_category(text, self.name("region", text))

    def _name_after_prefix(self, text: str, prefix: str) -> str:
        if prefix == public.BACKWARD_PREFIX:
            return self.name("operator", text) if text.startswith(public.BACKWARD_PREFIX) else self.operator(text)
        # Class.method: classes of PyTorch stay
        first, dot, last = text.rpartition(".")
        method = last if last in public.CLASS_METHODS else self.name("function", last)
        return f"{self.class_name(first)}{dot}{method}"

    def _match_category(self, text: str, pseudonym: str) -> str:
        """A pseudonym that counts to the same category as the name."""
        category = category_of(text)
        stems = dict.fromkeys((_with_telling(text, pseudonym), pseudonym))
        candidates = (candidate for stem in stems for candidate in (stem, *(f"{stem}_{word}" for word in (category, *_SAMPLES))))
        return next((candidate for candidate in candidates if category_of(candidate) == category), pseudonym)

    def npu_task(self, text: str) -> str:
        """The name of a task of an NPU: types made of the vendor's words, which may have a number, stay."""
        return text if public.NPU_TASK.match(text) and kernel_names.is_made_of_words(_type_of(text)) else self.task(text)

    def task(self, text: str) -> str:
        """The name of a device task."""
        if public.OPERATOR.match(text) or _is_collective(text) or public.COLLECTIVE_TASK.match(text):
            return text
        if kernel_names.is_kernel(text):
            return self._match_category(text, kernel_names.redact_kernel_name(text, self.name))
        if "/" in text:
            # scopes of MindSpore: Default/network-Net/conv1-Conv2d/Conv2d-op89
            *scopes, last = text.split("/")
            types = re.match(r"^[A-Z][A-Za-z0-9_]*-op\d+$", last) is not None and kernel_names.is_made_of_words(_type_of(last))
            stays = types or public.COLLECTIVE_TASK.match(last)
            return "/".join([*map(self.scope, scopes), last if stays else self.scope(last)])
        return self._match_category(text, self.name("task", text))

    def scope(self, text: str) -> str:
        """A part of a path of scopes."""
        if text in public.SCOPES:
            return text
        return _with_telling(text, self.name("scope", text))

    def module(self, text: str) -> str:
        """A path of modules, part by part, so that what lies inside what stays."""
        if _ADDRESS.search(text):
            return self.name("module", text)
        public_segments = ("DistributedDataParallel", "module")
        return ".".join(
            segment if segment.isdecimal() or segment in public_segments else self.name("module", segment)
            for segment in text.split(".")
        )

    def module_name(self, text: str) -> str:
        """A module as profilers number them: ``Linear_0``."""
        stem, under, number = text.rpartition("_")
        if under and number.isdecimal():
            return f"{self.class_name(stem)}_{number}"
        return self.module(text) if "." in text else self.class_name(text)

    def class_name(self, text: str) -> str:
        """A class; those of PyTorch's modules, optimizers and loaders stay."""
        return text if text in public.CLASSES else _with_telling(text, self.name("class", text))

    def frame(self, text: str) -> str:
        """A frame of Python, or a call of a module."""
        if text.startswith(MODULE_PREFIX):
            return MODULE_PREFIX + self.module_name(text.removeprefix(MODULE_PREFIX))
        built_in = public.BUILT_IN.match(text)
        if built_in:
            if _is_built_in(built_in["owner"], built_in["name"]):
                return text
            return f"<built-in {built_in['kind']} {self.name('function', text)}>"
        matched = _FRAME.match(text)
        if not matched:
            return self.name("frame", text)
        file, function = self.file(matched["file"]), matched["function"]
        if file not in public.FILES or function not in public.FUNCTIONS:
            function = self.name("function", function)
        frame_text = (
            f"{file}({matched['line']}): {function}{matched['close']}"
            if matched["line"]
            else f"{file}:{matched['line2']}({function})"
        )
        owner = frame_owner(text)
        return next((folder + frame_text for folder in _FOLDERS[owner] if frame_owner(folder + frame_text) == owner), frame_text)

    def stack(self, text: str) -> str:
        """A call stack: frames with semicolons between them."""
        return ";".join(map(self.frame, text.split(";")))

    def file(self, text: str) -> str:
        """A file of Python code; of Python's own and the frameworks' what follows their folder."""
        path = text.replace("\\", "/")
        for place in range(len(parts := path.split("/")) if len(path) <= _LONGEST_FILE else 0):
            public_part = "/".join(parts[place:])
            if public_part in public.FILES:
                # as it was, but for where it is installed
                return public_part
        package = re.search(r"(^|/)(site-packages|dist-packages)/", path)
        library = re.match(rf"^({'|'.join(public.LIBRARIES)})/", path)
        before = "site-packages/" if package else f"{library[1]}/" if library else ""
        return f"{before}{self.name('file', text)}.py"

    def words(self, text: str) -> str:
        """A sentence of steplens: its own words, numbers and vendors' terms stay, what else is in it is replaced."""
        text = _ADDRESS.sub(lambda found: self.name("address", found[0]), text)
        begins = True

        def redact_token(found: re.Match[str]) -> str:
            nonlocal begins
            before, token, possessive, after = (found[place] or "" for place in range(1, 5))
            if token and not self._is_prose(token, begins):
                token = self.name("word", token)
            begins = after.endswith((".", "!", "?", ":"))
            return f"{before}{token}{possessive}{after}"

        return _TOKEN.sub(redact_token, text)

    def _is_prose(self, token: str, begins: bool) -> bool:
        """Whether a word of a sentence is no name; only its first one begins with a capital."""
        if token in public.ACRONYMS or public.QUANTITY.match(token) or _PSEUDONYM.match(token) or not _WORD.search(token):
            return True
        plain = token[:1].lower() + token[1:] if begins else token
        if all(part in public.PROSE for part in re.split(r"[-/]", plain)):
            return True
        is_vendors = re.search(r"[_\d]", token) or public.FILE.match(token) or (token != token.lower() and not token.istitle())
        return public.OPERATOR.match(token) is not None or bool(is_vendors and _is_term(token))

    def types(self, text: str) -> str:
        """Types of data and units; each word that is none of them is replaced."""
        return _WORD.sub(lambda found: found[0] if found[0] in public.TYPE_WORDS else self.name("word", found[0]), text)

    def device(self, told: dict[str, Any]) -> dict[str, Any]:
        """What a source says of a device: its product's name and the numbers that analyses look up; the rest like any setting."""
        public_values = {
            key: item for key, item in told.items() if key in public.DEVICE_KEYS and (key == "name" or not isinstance(item, str))
        }
        private_values = {key: item for key, item in told.items() if key not in public_values}
        return {**public_values, **self.setting("device", private_values)}

    def term(self, text: str) -> str:
        """What a vendor calls a counter, a table, a column, a setting or its value: all of it stays or goes."""
        return text if _is_term(text) else self.name("word", text)

    def group(self, text: str) -> str:
        """A group of ranks, by its number or its name."""
        return text if text.isdecimal() or text in public.GROUPS else self.name("group", text)

    def domain(self, text: str) -> str:
        """The domain of a mark."""
        return text if text in public.DOMAINS else self.name("domain", text)

    def collate(self, text: str) -> str:
        """The function that puts samples together."""
        return text if text in public.COLLATES else self.name("function", text)

    def pipeline_operator(self, text: str) -> str:
        """An operator of MindSpore's data pipeline."""
        return text if public.PIPELINE_OPERATOR.match(text) else self.name("operator", text)

    def setting(self, key: str, value: Any, *, vendors: bool = False) -> Any:
        """A value of metadata or of a mark, by its key: numbers stay, and of texts those that are vendors' terms.

        In a vendor's table (``vendors``) a number stays whatever the key: ``stream_id`` names no machine.
        """
        if isinstance(value, dict):
            # the communication names of groups, as tables have them
            key_name = self.group if key == "parallel_group_info" else self.term
            return {key_name(name): self.setting(name, item) for name, item in value.items()}
        if isinstance(value, list):
            return [self.setting(key, item) for item in value]
        if not isinstance(value, str) or not value:
            return value
        if not _WORD.search(value) and (vendors or not public.SECRET_KEY.search(key)) and not _ADDRESS.search(value):
            return value
        if public.SECRET_KEY.search(key):
            return self.name("value", value)
        if key in ("pg_name", "pg_desc", "groupName", "group_name"):
            return self.group(value)
        if key.lstrip("_").startswith("mstx_domain"):
            return self.domain(value)
        if key in ("fp_start", "bp_end"):
            return self.npu_task(value)
        return value if _is_term(value) else self.name("value", value)

    def values(self, value: Any) -> Any:
        """A JSON value of the user's with all of its texts replaced; numbers stay."""
        if isinstance(value, str):
            return self.name("value", value)
        if isinstance(value, list):
            return [self.values(item) for item in value]
        if isinstance(value, dict):
            return {self.name("key", name): self.values(item) for name, item in value.items()}
        return value

    def record(self, text: str) -> str:
        """The message of a mark: a range of the framework's, a JSON document with terms as keys, or the user's text."""
        if not text.startswith(("{", "[")):
            return self.range(text)
        try:
            return json.dumps(self.setting("", json_text.loads_stored(text)))
        except ValueError:
            return self.name("mark", text)

    def vendor_record(self, text: str) -> str:
        """A row of a vendor's table: names and types of device tasks as by ``npu_task``, all else as by ``setting``."""
        try:
            return json.dumps(self._vendor_values("", json_text.loads_stored(text)))
        except ValueError:
            return self.name("record", text)

    def _vendor_values(self, key: str, value: Any) -> Any:
        if isinstance(value, str):
            if value.startswith(("{", "[")):
                return self.vendor_record(value)
            if public.NAMES_TASK.search(key) or re.match(r"^(Default|Gradients|recompute_Default)/[\w./-]+$", value):
                return value if _is_term(value) else self.npu_task(value)
            return self.setting(key, value, vendors=True)
        if isinstance(value, list):
            return [self._vendor_values(key, item) for item in value]
        if isinstance(value, dict):
            return {self.term(name): self._vendor_values(name, item) for name, item in value.items()}
        return value

    def path(self, kind: str, path: Path) -> Path:
        """A path on the disk, all of it."""
        return Path(self.name(kind, str(path)))

    def thread(self, text: str) -> str:
        """What a thread is called: ``thread 12 (pt_autograd_0)``."""
        matched = re.match(r"^thread (\d+) \((.*)\)$", text, re.DOTALL)
        name = matched[2] if matched else text
        redacted = name if public.THREAD.match(name) else self.name("thread", name)
        return f"thread {matched[1]} ({redacted})" if matched else redacted

    def device_type(self, text: str) -> str:
        """The type of a device task, as the vendor names it: ``MatMulV2``."""
        if text in CATEGORIES or self.npu_task(text) == text:
            return text
        return self._match_category(text, self.name("task", text))

    def category_or_task(self, text: str) -> str:
        """The type of a task of a GPU: its category, which steplens gives it, or else its name."""
        return text if text in (*CATEGORIES, "Memcpy", "Memset") else self.task(text)

    def call(self, text: str) -> str:
        """A call of a runtime or driver."""
        prepared = public.PREPARATION.match(text)
        is_known = public.CALL.match(text) or _is_collective(text) or _is_of_runtime(text)
        if is_known or (prepared and kernel_names.is_made_of_words(prepared[2] or "")):
            return text
        prepares = _PREPARES.search(text)
        return f"{self.name('call', text)}{prepares[0] if prepares else ''}"


def _is_collective(text: str) -> bool:
    matched = public.COLLECTIVE_RANGE.match(text)
    return bool(matched) and all(word.lower() in public.COLLECTIVES for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", matched[3]))  # type: ignore[index]


def _with_telling(text: str, pseudonym: str) -> str:
    """A pseudonym with the words of the name by which analyses know what it does."""
    words = {word.lower(): word for word in public.TELLING.findall(text)}
    return "_".join([pseudonym, *(word for low, word in words.items() if low not in pseudonym.lower())])


def _is_of_runtime(text: str) -> bool:
    words = re.findall(r"[A-Z][a-z]+", text)
    return len(text) <= _LONGEST_CALL and set(words) <= public.RUNTIME_WORDS and "".join(words) == text.replace("_", "") != ""


def _is_term(text: str) -> bool:
    """Whether a text consists of vendors' terms, numbers and signs; one letter may stand alone, as in "l2" and "block x"."""
    if _ADDRESS.search(text):
        return False
    parts = [_TERM_WORD.findall(part) for part in re.findall(r"[^\W_]+", text)]
    return text.lower() == "p2p" or all(
        sum(len(word) == 1 for word in words) <= 1 and all(len(word) == 1 or word.lower() in public.TERMS for word in words)
        for words in parts
    )


def _type_of(task: str) -> str:
    """The type in the name of a task of an NPU, without its number."""
    return re.sub(r"^trans_|-op\d+$|\d+$", "", task)


def _is_built_in(owner: str | None, name: str) -> bool:
    """Whether Python or PyTorch has such a function, or such a method of a type."""
    is_torch = name.removesuffix("_") in public.TORCH_FUNCTIONS
    if owner is None:
        return is_torch or hasattr(builtins, name)
    held = getattr(builtins, owner, None)
    return (is_torch and owner in ("Tensor", "Parameter", "type")) or (isinstance(held, type) and hasattr(held, name))


Replace = Callable[[str], str]
