"""A picture of stacked areas over time, as PNG: no drawing library is needed for one kind of picture."""

from __future__ import annotations

import functools
import struct
import zlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

#: 20 x 12 inches at 80 dots per inch
SIZE = (1600, 960)
_LEFT, _RIGHT, _TOP, _BOTTOM = 150, 1290, 110, 860

_WHITE, _BLACK, _GREY = 0, 1, 2
_FIRST_BAND = 3
_TICKS = 8
#: of the areas, over white
_OPACITY = 0.7

#: 5 x 7 pixels each, a row per two hexadecimal digits, the leftmost pixel in bit 4
_LETTERS = {
    "0": "0e11131519110e", "1": "040c040404040e", "2": "0e11010204081f", "3": "1f02040201110e", "4": "02060a121f0202",
    "5": "1f101e0101110e", "6": "0608101e11110e", "7": "1f010204080808", "8": "0e11110e11110e", "9": "0e11110f01020c",
    "A": "0e11111f111111", "B": "1e11111e11111e", "C": "0e11101010110e", "D": "1c12111111121c", "E": "1f10101e10101f",
    "F": "1f10101e101010", "G": "0e11101711110f", "H": "1111111f111111", "I": "0e04040404040e", "J": "0702020202120c",
    "K": "11121418141211", "L": "1010101010101f", "M": "111b1515111111", "N": "11111915131111", "O": "0e11111111110e",
    "P": "1e11111e101010", "Q": "0e11111115120d", "R": "1e11111e141211", "S": "0f10100e01011e", "T": "1f040404040404",
    "U": "1111111111110e", "V": "11111111110a04", "W": "1111111515150a", "X": "11110a040a1111", "Y": "1111110a040404",
    "Z": "1f01020408101f",
    "a": "00000e010f110f", "b": "10101619111e00", "c": "00000e1010110e", "d": "01010d1311110f", "e": "00000e111f100e",
    "f": "0609081c080808", "g": "000f110f01010e", "h": "10101619111111", "i": "04000c0404040e", "j": "0200060202120c",
    "k": "10101214181412", "l": "0c04040404040e", "m": "00001a15151111", "n": "00001619111111", "o": "00000e1111110e",
    "p": "00001e111e1010", "q": "00000d130f0101", "r": "00001619101010", "s": "00000e100e011e", "t": "08081c08080906",
    "u": "0000111111130d", "v": "00001111110a04", "w": "0000111115150a", "x": "0000110a040a11", "y": "000011110f010e",
    "z": "00001f0204081f",
    " ": "00000000000000", ".": "00000000000c0c", ",": "000000000c0408", ":": "000c0c000c0c00", "(": "02040808080402",
    ")": "08040202020408", "-": "0000001f000000", "_": "0000000000001f", "/": "00010204081000", "%": "18190204081303",
    "+": "0004041f040400", "=": "00001f001f0000",
}  # fmt: skip
_UNKNOWN_LETTER = "1f11111111111f"
_LETTER_WIDTH, _LETTER_HEIGHT = 5, 7
#: pixels of the picture for one of a letter
_SCALE = 2

Image = npt.NDArray[np.uint8]
Float = npt.NDArray[np.float64]


def stacked_areas(
    time: Float, heights: Float, labels: Sequence[str], colours: Sequence[int], title: Sequence[str], axes: tuple[str, str]
) -> bytes:
    """Draw what each of several parts adds to a sum that changes in steps.

    Every column of pixels shows the moment of its span at which the sum is highest, so no peak is lost, however short.

    Args:
        time: when each state begins, ascending from 0, shape (n,).
        heights: size of each part from then on, not negative, shape (n, parts).
        labels: names of the parts, for the legend, the lowest part first.
        colours: their colours as 0xRRGGBB.
        title: lines above the picture.
        axes: what is written at the axes of time and size.

    Returns:
        a PNG file.
    """
    image = np.full(SIZE[::-1], _WHITE, dtype=np.uint8)
    total = heights.sum(axis=1)
    longest, highest = float(time[-1]) or 1.0, float(total.max()) or 1.0
    step_x, step_y = _tick_distance(longest), _tick_distance(highest)
    top = step_y * np.ceil(highest / step_y)
    _fill_areas(image, _column_heights(time, heights, total, longest), top)
    for value in np.arange(0, longest + step_x / 2, step_x):
        x = _LEFT + round(value / longest * (_RIGHT - _LEFT))
        if x <= _RIGHT:
            image[_BOTTOM : _BOTTOM + 8, x] = _BLACK
            _draw_text(image, _format_tick(value, step_x), x, _BOTTOM + 16, centred=True)
    for value in np.arange(0, top + step_y / 2, step_y):
        y = _BOTTOM - round(value / top * (_BOTTOM - _TOP))
        row = image[y, _LEFT:_RIGHT]
        row[row == _WHITE] = _GREY
        image[y, _LEFT - 8 : _LEFT] = _BLACK
        text = _format_tick(value, step_y)
        _draw_text(image, text, _LEFT - 16 - _SCALE * (_LETTER_WIDTH + 1) * len(text), y - _LETTER_HEIGHT)
    image[_TOP : _BOTTOM + 1, _LEFT] = image[_TOP : _BOTTOM + 1, _RIGHT] = _BLACK
    image[_TOP, _LEFT : _RIGHT + 1] = image[_BOTTOM, _LEFT : _RIGHT + 1] = _BLACK
    for number, line in enumerate(title):
        _draw_text(image, line, (_LEFT + _RIGHT) // 2, 30 + 28 * number, centred=True)
    _draw_text(image, axes[0], (_LEFT + _RIGHT) // 2, _BOTTOM + 55, centred=True)
    _draw_text(image, axes[1], 24, _TOP - 32)
    # in the order of the picture, the uppermost part first
    for number, label in enumerate(reversed(labels)):
        y = _TOP + 10 + 36 * number
        image[y - 6 : y + 20, _RIGHT + 24 : _RIGHT + 50] = _FIRST_BAND + len(labels) - 1 - number
        _draw_text(image, label, _RIGHT + 62, y)
    blended = [tuple(round(255 - (255 - (colour >> shift & 255)) * _OPACITY) for shift in (16, 8, 0)) for colour in colours]
    return _encode_png(image, [(255, 255, 255), (0, 0, 0), (225, 225, 225), *blended])


def _column_heights(time: Float, heights: Float, total: Float, longest: float) -> Float:
    """The state that each column of pixels shows, shape (columns, parts)."""
    edges = np.linspace(0, longest, _RIGHT - _LEFT)
    # a column shows what is there when it begins, and what comes before the next one does
    begin = np.searchsorted(time, edges, side="right") - 1
    end = np.append(np.searchsorted(time, edges[1:], side="left"), len(time))
    peak_rows = [
        low + int(total[low : max(high, low + 1)].argmax()) for low, high in zip(begin.tolist(), end.tolist(), strict=True)
    ]
    return heights[peak_rows]


def _fill_areas(image: Image, columns: Float, top: float) -> None:
    height = _BOTTOM - _TOP
    edges = np.rint(np.cumsum(columns, axis=1) / top * height).astype(np.int64)
    level = np.arange(height)[:, None]
    area = image[_TOP:_BOTTOM, _LEFT:_RIGHT]
    lower_edge = np.zeros(edges.shape[0], dtype=np.int64)
    for part in range(edges.shape[1]):
        is_filled = (level >= lower_edge) & (level < edges[:, part])
        # the first row of an image is its uppermost one
        area[is_filled[::-1]] = _FIRST_BAND + part
        lower_edge = edges[:, part]


def _tick_distance(largest: float) -> float:
    """A round distance of ticks, 1, 2 or 5 times a power of ten."""
    raw = largest / _TICKS
    power = 10.0 ** np.floor(np.log10(raw))
    return float(next((factor * power for factor in (1, 2, 5) if factor * power >= raw), 10 * power))


def _format_tick(value: float, step: float) -> str:
    digits = max(-int(np.floor(np.log10(step))), 0)
    return f"{value:.{digits}f}"


@functools.cache
def _letter_mask(character: str) -> npt.NDArray[np.bool_]:
    rows = bytes.fromhex(_LETTERS.get(character, _UNKNOWN_LETTER))
    return np.array([[bool(row >> (_LETTER_WIDTH - 1 - column) & 1) for column in range(_LETTER_WIDTH)] for row in rows])


def _draw_text(image: Image, text: str, x: int, y: int, *, centred: bool = False) -> None:
    # a column without a pixel behind each letter
    letters = [np.pad(_letter_mask(character), ((0, 0), (0, 1))) for character in text or " "]
    mask = np.hstack(letters).repeat(_SCALE, axis=0).repeat(_SCALE, axis=1)
    x = max(x - (mask.shape[1] // 2 if centred else 0), 0)
    target = image[y : y + mask.shape[0], x : x + mask.shape[1]]
    target[mask[: target.shape[0], : target.shape[1]]] = _BLACK


def _encode_png(image: Image, palette: Sequence[tuple[int, ...]]) -> bytes:
    height, width = image.shape
    # each row begins with the number of its filter, none
    rows = np.concatenate((np.zeros((height, 1), dtype=np.uint8), image), axis=1)
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    colours = bytes(component for colour in palette for component in colour)
    parts = ((b"IHDR", header), (b"PLTE", colours), (b"IDAT", zlib.compress(rows.tobytes(), 6)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_png_chunk(kind, content) for kind, content in parts)


def _png_chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
