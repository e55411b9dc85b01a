"""Random pieces of events as JSON text, most of them valid, in all the ways in which the same may be written."""

from __future__ import annotations

import random
from collections.abc import Callable

Text = str

_NAMES = (
    "aten::mm",
    "aten::conv2d",
    "c10d::send",
    "hipLaunchKernel",
    "cudaLaunchKernel",
    "ProfilerStep#3",
    "gemm",
    "",
    "ncclKernel",
    'a "b" \\ /',
    "\u00e9\u4e2d\U0001f600",
    "tab\there\n",
    "\x00\x1f",
    "record_param_comms",
    "x" * 90,
)
_CATEGORIES = (
    "cpu_op",
    "user_annotation",
    "Operator",
    "kernel",
    "Kernel",
    "gpu_memcpy",
    "gpu_memset",
    "cuda_runtime",
    "hip_runtime",
    "overhead",
    "gpu_user_annotation",
    "cuda_sync",
    "python_function",
    "Trace",
    "something",
    "",
    "\u4e2d",
    "privateuse1_driver",
)
_WEIGHTS = (12, 2, 1, 8, 1, 2, 1, 4, 2, 1, 1, 1, 3, 1, 1, 1, 1, 1)
_PHASES = ("X", "i", "s", "f", "M", "B", "E", "C", "I", "Q")
_PHASE_WEIGHTS = (70, 8, 4, 4, 3, 2, 2, 1, 0.05, 0.05)
_PLAIN_NUMBERS = (
    "0",
    "1",
    "7",
    "12",
    "123456",
    "-1",
    "-0",
    "4294967296",
    "1125899906842624",
    "999999999999999999",
    "9223372036854775807",
    "-9223372036854775807",
)
_ODD_NUMBERS = (
    "1.0",
    "1e3",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "-9223372036854775808",
    "123456789012345678901234567890",
    "2.5",
    "1E-2",
    '"12"',
    '"gpu 0"',
    "true",
    "null",
    "[1]",
    "{}",
    '""',
)
_BROKEN = (
    "01",
    "1.",
    ".5",
    "-",
    "+1",
    "NaN",
    "Infinity",
    "1e",
    "0x1",
    "tru",
    "nul",
    "'a'",
    "1e999",
    "-1e999",
    "[1,]",
    '{"a":1,}',
    "[1 2]",
    '"a\x01b"',
    '"\\x"',
    '"\\ud800"',
    '"\\udc00"',
    '"\\u12g4"',
    '"open',
    "[",
    "{",
    "]",
    "}",
    "",
    '{"a"}',
    "{1:2}",
)
_RAWS = (
    "[]",
    "[[8, 16], [], [16]]",
    "[[8, 16], [], [16 ]]",
    '["float", "ScalarList", ""]',
    "[[[2, 3], [4]], []]",
    '[""]',
    "{}",
    "null",
    '"text"',
    "12",
    "[[8,16],[],[16]]",
    '["\\u0041", "\\n"]',
    '[["a", [null, true, false, -1.5e3]]]',
    '[{"a": {"b": [1]}}]',
)
_LAUNCHES = (
    '"registers per thread": 32, "shared memory": 0, "blocks per SM": 0.5, "grid": [1, 1, 1], "block": [32, 1, 1]',
    '"registers per thread": 40,"grid": [2,1,1],"est. achieved occupancy %": 12',
    '"registers per thread": 32, "correlation": 7',
    '"registers per thread": 1, "memory bandwidth (GB/s)": 2',
    '"registers per thread": "registers per thread"',
    '"grid": [1, 1, 1]',
    '"core": "AIC"',
    '"Collective name": "allreduce"',
    '"note": "registers per thread"',
    '"\\u0072egisters per thread": 3',
    "",
)
_LAUNCH_WEIGHTS = (60, 30, 1, 1, 1, 3, 1, 1, 1, 1, 3)


class PieceMaker:
    """Makes pieces, each of its own style.

    Args:
        seed: the same seed makes the same pieces.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._oddness = 0.0
        self._spaces: tuple[Text, ...] = ("",)
        self._time: Callable[[], Text] = self._small_time

    def make_piece(self) -> bytes:
        """One piece of JSON array text."""
        choose = self._random
        # of most pieces everything is as it should be, of others one member in some hundred or in some ten is not
        self._oddness = choose.choice((0, 0, 0, 0.001, 0.01, 0.1))
        self._spaces = choose.choice((("",), (" ",), ("\n    ", " ", ""), ("", " ", "\t", "\r\n", " \n\t ")))
        self._time = choose.choice((self._small_time, self._small_time, self._epoch_time, self._any_time))
        kinds = choose.choice((None, None, ["kernel"], ["cpu_op"], ["hip_runtime", "cpu_op"], ["kernel", "gpu_memcpy"]))
        events = [self._event(kinds) for _ in range(choose.choice((0, 1, 2, 5, 20, 60)))]
        space = self._space
        text = "[" + space() + (space() + "," + space()).join(events) + space() + "]"
        data = text.encode("utf-8", "surrogatepass")
        if choose.random() < 0.05:
            data = self.damage_piece(data)
        return data

    def damage_piece(self, data: bytes) -> bytes:
        """A piece with a few bytes that are others, too many or too few."""
        choose = self._random
        changed = bytearray(data)
        for _ in range(choose.choice((1, 1, 2, 5))):
            at = choose.randrange(len(changed)) if changed else 0
            what = choose.random()
            if what < 0.3 and changed:
                changed[at] = choose.choice(b'"\\{}[],: \x00\x01\xff\xc3\xed\xa00123eE.-')
            elif what < 0.5 and changed:
                changed[at] ^= 1 << choose.randrange(8)
            elif what < 0.7:
                del changed[at : at + choose.choice((1, 1, 4, 40))]
            elif what < 0.9:
                changed[at:at] = choose.choice(
                    (b'"', b"\\", b"{", b"}", b"[", b"]", b",", b"[" * 70 + b"]" * 70, b"\x00", b"null")
                )
            else:
                begin = choose.randrange(len(changed)) if changed else 0
                changed[at:at] = changed[begin : begin + 50]
        return bytes(changed)

    def _space(self) -> Text:
        return self._random.choice(self._spaces)

    def _event(self, kinds: list[str] | None) -> Text:
        choose = self._random
        phase = choose.choices(_PHASES, _PHASE_WEIGHTS)[0]
        category = choose.choice(kinds) if kinds else choose.choices(_CATEGORIES, _WEIGHTS)[0]
        members = {"ph": self._string(phase), "cat": self._string(category), "name": self._string(choose.choice(_NAMES))}
        members["pid"], members["tid"] = self._integer(), self._integer()
        members["ts"] = self._odd_or(self._time())
        if phase == "X":
            members["dur"] = self._odd_or(choose.choice((self._small_time, self._time))())
        if phase in "sf":
            members["id"] = self._integer()
        if choose.random() < 0.9:
            members["args"] = self._odd_or(self._arguments(phase, category))
        if choose.random() < 0.1:
            members["other"] = choose.choice(_RAWS)
        for key in list(members):
            if choose.random() < (0.002 if key != "ph" else 0.0005):
                del members[key]
        return self._object(list(members.items()))

    def _object(self, members: list[tuple[str, Text]]) -> Text:
        choose = self._random
        if choose.random() < 0.2:
            choose.shuffle(members)
        if members and choose.random() < self._oddness:
            members.append(choose.choice(members))
        space = self._space
        texts = [f"{self._string(key)}{space()}:{space()}{value}" for key, value in members]
        return "{" + space() + (space() + "," + space()).join(texts) + space() + "}"

    def _arguments(self, phase: str, category: str) -> Text:
        choose = self._random
        chance = choose.random()
        if chance < 0.03:
            return choose.choice(("{}", "null", "{ }"))
        members: list[tuple[str, Text]] = []
        if phase == "M":
            members = [
                (choose.choice(("name", "labels", "sort_index")), choose.choice(('"python"', '"GPU 0"', "3", "1.5", "null")))
            ]
        elif phase == "i":
            keys = ("Addr", "Bytes", "Total Allocated", "Total Reserved", "Device Id", "Device Type")
            members = [(key, self._integer()) for key in keys]
        elif category in ("cpu_op", "user_annotation", "Operator"):
            members = self._operator_arguments()
        elif category == "python_function":
            members = [(key, self._integer()) for key in ("Python id", "Python parent id", "Python module id")]
        else:
            return self._task_arguments()
        members = [member for member in members if choose.random() < 0.9]
        if choose.random() < 0.2:
            members.append((choose.choice(("Ev Idx", "more", "Input Strides")), choose.choice(_RAWS)))
        return self._object(members)

    def _operator_arguments(self) -> list[tuple[str, Text]]:
        choose = self._random
        members = [("External id", self._integer())]
        if choose.random() < 0.5:
            members += [("Sequence number", self._integer()), ("Fwd thread id", self._integer())]
        if choose.random() < 0.7:
            members += [(key, choose.choice(_RAWS)) for key in ("Concrete Inputs", "Input type", "Input Strides", "Input Dims")]
        if choose.random() < 0.2:
            members += [("Call stack", self._string(choose.choice(("a.py(3): f;b.py(4): g", "", "\u4e2d"))))]
        if choose.random() < 0.2:
            members += [("flops", choose.choice(("12", "1.5e9", "0.99", "-3.7", "123456789012", "null")))]
        if choose.random() < 0.1:
            members += [
                ("Collective name", self._string("allreduce")),
                ("In msg nelems", self._integer()),
                ("Process Group Name", choose.choice(('"0"', "3", '"tp"'))),
            ]
        return members

    def _task_arguments(self) -> Text:
        choose = self._random
        keys = ("External id", "device", "context", "stream", "correlation")
        members = [f'"{key}":{self._space()}{self._integer()}' for key in keys if choose.random() < 0.95]
        if choose.random() < 0.2:
            members.append(f'"bytes": {self._integer()}')
        if choose.random() < 0.2:
            members.append(
                f'"memory bandwidth (GB/s)": {self._odd_or(choose.choice(("1.5", "3", "0.1234567890123456789", "null")))}'
            )
        launch = choose.choices(_LAUNCHES, _LAUNCH_WEIGHTS)[0]
        if launch:
            members.insert(len(members) if choose.random() < 0.98 else 0, launch)
        return "{" + self._space() + ", ".join(members) + self._space() + "}"

    def _odd_or(self, text: Text) -> Text:
        chance = self._random.random()
        if chance < self._oddness / 4:
            return self._random.choice(_BROKEN)
        return self._random.choice(_ODD_NUMBERS) if chance < self._oddness else text

    def _integer(self) -> Text:
        return self._odd_or(
            self._random.choice(_PLAIN_NUMBERS) if self._random.random() < 0.3 else str(self._random.randrange(100000))
        )

    def _string(self, text: str) -> Text:
        """JSON text of a string, with more escapes than it needs now and then."""
        choose = self._random
        many = choose.random() < 0.03
        parts = []
        for character in text:
            code = ord(character)
            if character in '"\\' or code < 0x20 or (many and choose.random() < 0.5 and code < 0x10000):
                short = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "/": "\\/"}.get(character)
                parts.append(short if short and choose.random() < 0.7 else f"\\u{code:04x}")
            elif many and code >= 0x10000:
                parts.append(f"\\u{0xD800 + (code - 0x10000 >> 10):04X}\\u{0xDC00 + (code - 0x10000 & 0x3FF):04x}")
            else:
                parts.append(character)
        return '"' + "".join(parts) + '"'

    def _fraction(self) -> Text:
        choose = self._random
        if choose.random() < 0.9:
            return f".{choose.randrange(1000):03d}"
        digits = choose.choice((1, 2, 4, 5, 6, 9, 15, 20))
        return "." + "".join(choose.choice("0123456789") if choose.random() < 0.6 else "5" for _ in range(digits))

    def _small_time(self) -> Text:
        choose = self._random
        whole = choose.choice(
            (choose.randrange(100), choose.randrange(10**9), choose.randrange(10**12), choose.randrange(8 * 10**12))
        )
        return f"{whole}{self._fraction() if choose.random() < 0.9 else ''}"

    def _epoch_time(self) -> Text:
        choose = self._random
        return f"{1_600_000_000_000_000 + choose.randrange(10**14)}{self._fraction() if choose.random() < 0.7 else ''}"

    def _any_time(self) -> Text:
        choose = self._random
        limit = choose.choice((1 << 43, 1 << 52, 4 * 10**15, 10**16, 1 << 63, 1 << 64))
        whole = limit + choose.choice((-2, -1, 0, 1, 2)) if choose.random() < 0.5 else choose.randrange(limit)
        sign = choose.choice(("", "", "", "-"))
        exponent = choose.choice(("", "", "", "", "", "e3", "E-3", "e+2", "e0", "e300"))
        return f"{sign}{whole}{self._fraction() if choose.random() < 0.5 else ''}{exponent}"
