"""The ranks and devices of MindSpore that results are made of, and whether their results are there already."""

from __future__ import annotations

from pathlib import Path

from steplens.common import rundir
from steplens.common.errors import InputError
from steplens.readers.common.side_files import read_json
from steplens.readers.mindspore import mindspore_find
from steplens.readers.mindspore.mindspore_find import LEGACY, WINDOWS, MindSporeSource
from steplens.trace.cache import own_results

_REMEDY = "Give the directory above 'profiler', or a run directory"


def find(path: Path) -> list[MindSporeSource]:
    """Every rank and device below ``path`` that results can be made of.

    Raises:
        InputError: there is none; the message says why, also where the raw data was removed.
    """
    if not path.exists():
        raise InputError(path, "does not exist", _REMEDY)
    candidates = [path, path / rundir.PROFILER_DIRECTORY]
    if path.is_dir():
        children = sorted(child for child in path.iterdir() if child.is_dir() and not child.is_symlink())
        candidates += [folder for child in children for folder in (child, child / rundir.PROFILER_DIRECTORY)]
    folders = [folder for folder in dict.fromkeys(candidates) if folder.is_dir()]
    sources = list(dict.fromkeys(source for folder in folders for source in mindspore_find.find_sources(folder)))
    raw = [source for source in sources if is_raw(source) or source.host_file is not None]
    if raw:
        return raw
    infos = [(source.path, source.path / f"{rundir.INFO_PREFIX}_{source.number}.json") for source in sources]
    runs = [folder for folder in folders if folder.name.endswith(rundir.MINDSPORE_RUN_SUFFIX)]
    infos += [(folder, file) for folder in runs for file in folder.glob(f"{rundir.INFO_PREFIX}*.json")]
    for folder, info in infos:
        if read_json(info).get("raw_data_removed"):
            why = "holds no raw data any more: data simplification removed it when the results were made"
            raise InputError(folder, why, "Its results are complete; record with data_simplification=False to keep raw data")
    raise InputError(path, "holds no data recorded with MindSpore", _REMEDY)


def in_words(source: MindSporeSource) -> str:
    """Folder and rank, for messages."""
    return f"{source.path}, {'device' if source.kind == LEGACY else 'rank'} {source.number}"


def is_raw(source: MindSporeSource) -> bool:
    """Whether results are made of it: it is recorded data, not somebody's results."""
    return source.kind in (WINDOWS, LEGACY)


def is_complete(source: MindSporeSource) -> bool:
    """Whether its results are there, newer than its data, and all of their files are, as this user's steplens made them."""
    files, recorded = _result_files(source), source.recorded()
    try:
        newest = max(file.stat().st_mtime_ns for file in recorded)
        made = files[0].stat().st_mtime_ns
    except (OSError, ValueError):
        return False
    there = made > newest and len(files) > 1 and all(file.is_file() for file in files)
    return there and own_results.are_ours(source.path, _seal_name(source), [*files, *recorded])


def keep_complete(source: MindSporeSource) -> None:
    """Remember that its complete results are ours, for ``is_complete``; nothing where they are not complete."""
    files = _result_files(source)
    if len(files) > 1:
        own_results.remember_results(source.path, _seal_name(source), [*files, *source.recorded()])


def _seal_name(source: MindSporeSource) -> str:
    """Of the seal of its results."""
    return f"results_{source.kind}_{source.number}"


def _result_files(source: MindSporeSource) -> list[Path]:
    """Its ``profiler_info`` and the files that this names as those of complete results."""
    into = source.path if source.kind == WINDOWS else source.path / rundir.PROFILER_DIRECTORY
    info = into / f"{rundir.INFO_PREFIX}_{source.number}.json"
    written = read_json(info).get("outputs")
    return [info, *(into / name for name in written if isinstance(name, str))] if isinstance(written, list) else [info]
