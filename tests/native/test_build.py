"""How libraries of C++ are built, kept and found, with a small one of our own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from steplens.common.native import build, libraries
from steplens.common.native.build import BuildError, build_library
from steplens.common.native.libraries import NativeLibrary

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NativeLibrary:
    """A library of one function, and a cache folder of its own."""
    sources = tmp_path / "native" / "seven"
    sources.mkdir(parents=True)
    (sources / "seven.cpp").write_text('extern "C" __attribute__((visibility("default"))) int seven() { return 7; }\n')
    monkeypatch.setattr(libraries, "SOURCES", tmp_path / "native")
    monkeypatch.setattr(libraries, "PREBUILT", tmp_path / "native" / "prebuilt")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(libraries.VARIABLE, raising=False)
    return NativeLibrary("seven")


@needs_compiler
def test_a_library_is_built_once_and_found(library: NativeLibrary) -> None:
    assert libraries.load_built(library) is None
    path = build_library(library)
    assert path == libraries.find_built(library) and path.parent == libraries.build_folder()
    loaded = libraries.load_built(library)
    assert loaded is not None and loaded.seven() == 7
    time = path.stat().st_mtime_ns
    assert build_library(library) == path and path.stat().st_mtime_ns == time


@needs_compiler
def test_a_changed_source_or_option_is_another_library(library: NativeLibrary) -> None:
    first = build_library(library)
    assert NativeLibrary("seven", (), ("another PyTorch",)).file_name() != first.name
    source = library.source_files()[0]
    source.write_text(source.read_text().replace("7;", "8;"))
    os.utime(source, ns=(1, 1))
    assert libraries.find_built(library) is None
    assert build_library(library) != first


@needs_compiler
def test_many_processes_build_it_once(library: NativeLibrary, tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    compiler = tmp_path / "bin" / "counting"
    compiler.parent.mkdir()
    compiler.write_text(f'#!/bin/sh\necho call >> {calls}\nsleep 0.3\nexec {shutil.which("g++")} "$@"\n')
    compiler.chmod(0o755)
    text = (
        "import sys; from pathlib import Path; from steplens.common.native import build, libraries\n"
        "libraries.SOURCES = Path(sys.argv[1]); libraries.PREBUILT = Path(sys.argv[1]) / 'prebuilt'\n"
        "print(build.build_library(libraries.NativeLibrary('seven')))"
    )
    environment = {**os.environ, "CXX": str(compiler)}
    command = [sys.executable, "-c", text, str(tmp_path / "native")]
    processes = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    printed = {process.communicate(timeout=60)[0].strip() for process in processes}
    assert printed == {str(libraries.find_built(library))}
    assert calls.read_text().splitlines() == ["call"]


def test_without_a_compiler_the_error_names_what_to_install(library: NativeLibrary, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(BuildError, match=r"no C\+\+ compiler.*Install one"):
        build_library(library)


@needs_compiler
def test_a_failure_is_told_and_not_repeated(library: NativeLibrary, monkeypatch: pytest.MonkeyPatch) -> None:
    source = library.source_files()[0]
    source.write_text("this is no C++\n")
    with pytest.raises(BuildError, match=r"failed: .*error"):
        build_library(library)
    compiler = build.find_compiler()
    assert compiler is not None and "failed" in build.known_failure(library, compiler)
    monkeypatch.setattr(build, "_compile_library", lambda *_: pytest.fail("it was compiled again"))
    with pytest.raises(BuildError, match=r"remove .*failed to have it tried again"):
        build_library(library)


@needs_compiler
def test_what_others_may_write_to_is_not_loaded(library: NativeLibrary) -> None:
    path = build_library(library)
    path.parent.chmod(0o777)
    assert libraries.find_built(library) is None
    with pytest.raises(BuildError, match="others can write to it"):
        build_library(library)
    path.parent.chmod(0o700)
    assert libraries.find_built(library) == path


@needs_compiler
def test_off_means_off(library: NativeLibrary, monkeypatch: pytest.MonkeyPatch) -> None:
    build_library(library)
    monkeypatch.setenv(libraries.VARIABLE, "off")
    assert libraries.load_built(library) is None
    with pytest.raises(BuildError, match="STEPLENS_NATIVE=off"):
        build_library(library)


@needs_compiler
def test_a_wheel_brings_it_built(library: NativeLibrary) -> None:
    libraries.PREBUILT.mkdir()
    path = build_library(library, libraries.PREBUILT)
    assert libraries.find_built(library) == path and path.parent == libraries.PREBUILT
    assert not libraries.build_folder().exists()
