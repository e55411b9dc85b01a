"""Finding, loading and declaring CANN's profiling library, and its list of features in both layouts."""

import ctypes
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from steplens.collect.ascend import features, installation, library

from .ascend_library.build import NAME, Stand, compiled

SOURCE = Path(__file__).resolve().parents[2] / "src"

OPTIONAL = {
    "-DWITHOUT_SETCONFIG": "aclprofSetConfig",
    "-DWITHOUT_WARMUP": "aclprofWarmup",
    "-DWITHOUT_REGISTER": "aclprofRegisterDeviceCallback",
    "-DWITHOUT_FEATURES": "aclprofGetSupportedFeatures",
    "-DWITHOUT_FEATURES_V2": "aclprofGetSupportedFeaturesV2",
}


@pytest.fixture(autouse=True)
def _no_cann(monkeypatch):
    for name in (library.OVERRIDE, *library.HOME_VARIABLES, "LD_LIBRARY_PATH"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def stand(monkeypatch, tmp_path):
    return Stand(monkeypatch, tmp_path)


def in_folder(folder, *flags):
    folder.mkdir(parents=True)
    return shutil.copy(compiled(*flags), folder / NAME)


def test_nothing_installed():
    with pytest.raises(library.LibraryError) as error:
        library.load_cann()
    assert str(error.value) == (
        "CANN's profiling library libmsprofiler.so was found not in the system's library folders: "
        "install CANN and source its set_env.sh before starting Python"
    )


def test_nothing_where_the_environment_points(monkeypatch, tmp_path):
    monkeypatch.setenv("ASCEND_TOOLKIT_HOME", str(tmp_path / "toolkit"))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path / "one"))
    with pytest.raises(library.LibraryError) as error:
        library.load_cann()
    assert f"neither in {tmp_path / 'toolkit' / 'lib64'}, {tmp_path / 'one'} nor in the system's" in str(error.value)


@pytest.mark.parametrize("variable", ["ASCEND_TOOLKIT_HOME", "ASCEND_HOME_PATH"])
def test_installation(variable, monkeypatch, tmp_path):
    path = in_folder(tmp_path / "cann" / "lib64")
    monkeypatch.setenv(variable, str(tmp_path / "cann"))
    assert library.load_cann().path == str(path)


def test_library_path(monkeypatch, tmp_path):
    path = in_folder(tmp_path / "somewhere")
    monkeypatch.setenv("LD_LIBRARY_PATH", f"/nowhere::{tmp_path / 'somewhere'}")
    assert library.load_cann().path == str(path)


def test_the_installation_comes_before_the_library_path(monkeypatch, tmp_path):
    in_folder(tmp_path / "somewhere")
    path = in_folder(tmp_path / "cann" / "lib64")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path / "somewhere"))
    monkeypatch.setenv("ASCEND_HOME_PATH", str(tmp_path / "cann"))
    assert library.load_cann().path == str(path)


def test_the_library_that_is_loaded_already_is_used(monkeypatch, tmp_path):
    """A second copy of CANN's library would record nothing, because the framework talks to the first."""
    framework = in_folder(tmp_path / "framework", "-Wl,-soname,libmsprofiler.so")
    in_folder(tmp_path / "cann" / "lib64")
    code = f"""
import ctypes
from steplens.collect.ascend import library
held = ctypes.CDLL({str(framework)!r})
print(library.load_cann().path)
"""
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "ASCEND_TOOLKIT_HOME": str(tmp_path / "cann")}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(framework)


def test_override_that_is_not_there_falls_back_on_nothing(monkeypatch, tmp_path):
    in_folder(tmp_path / "cann" / "lib64")
    monkeypatch.setenv("ASCEND_TOOLKIT_HOME", str(tmp_path / "cann"))
    monkeypatch.setenv(library.OVERRIDE, "/nowhere/lib.so")
    with pytest.raises(library.LibraryError, match=r"STEPLENS_MSPROFILER_LIBRARY names /nowhere/lib\.so, which cannot be loaded"):
        library.load_cann()


def test_file_that_is_no_library(monkeypatch, tmp_path):
    (tmp_path / "lib64").mkdir()
    (tmp_path / "lib64" / NAME).write_text("not a library")
    monkeypatch.setenv("ASCEND_HOME_PATH", str(tmp_path))
    with pytest.raises(library.LibraryError, match="cannot be loaded"):
        library.load_cann()


def test_library_without_what_is_needed(monkeypatch, stand):
    stand("-DWITHOUT_INIT")
    with pytest.raises(library.LibraryError, match="has no aclprofInit: it is not CANN's profiling library, or another"):
        library.load_cann()


@pytest.mark.parametrize(("flag", "symbol"), OPTIONAL.items())
def test_optional_symbols(stand, flag, symbol):
    stand(flag)
    found = library.load_cann().symbols()
    assert {name for name, there in found.items() if not there} == {symbol}
    assert len(found) == 11


def test_calls_that_are_not_there_are_unsupported(stand):
    stand("-DWITHOUT_SETCONFIG", "-DWITHOUT_WARMUP", "-DWITHOUT_REGISTER")
    cann = library.load_cann()
    calls = (("aclprofSetConfig", 3, b"50"), ("aclprofWarmup", 1), ("aclprofRegisterDeviceCallback",))
    assert [cann.call(*call) for call in calls] == [200007] * 3


# --- the list of features

LISTED = "ATTR:1:2:all:all,MemoryAccess:0:1:PTA:2.1.0,AICORE_SHAPE:1:1:mindspore:all"


@pytest.mark.parametrize("layout", [(), ("-DPLAIN_FEATURES",)], ids=["virtual", "plain"])
def test_list_of_features(stand, layout):
    stand(*layout)
    stand.set("STEPLENS_TEST_FEATURES", LISTED)
    assert library.load_cann().features() == [
        features.Feature("ATTR", "1", "2", "all", "all", "It not support feature: ATTR!"),
        features.Feature("MemoryAccess", "0", "1", "PTA", "2.1.0", "It not support feature: MemoryAccess!"),
        features.Feature("AICORE_SHAPE", "1", "1", "mindspore", "all", "It not support feature: AICORE_SHAPE!"),
    ]


@pytest.mark.parametrize("name", ["A", "ATTR", "EIGHTLTR", "NINELETTR", "MemoryAccess", "SIXTEEN_LETTERS_", "x" * 63])
@pytest.mark.parametrize("layout", [(), ("-DPLAIN_FEATURES",)], ids=["virtual", "plain"])
def test_the_layout_is_recognised_with_names_of_any_length(stand, layout, name):
    stand(*layout)
    stand.set("STEPLENS_TEST_FEATURES", f"{name}:1:1:all:all,ATTR:1:1:all:all")
    assert [feature.name for feature in library.load_cann().features()] == [name, "ATTR"]


def test_the_first_version_of_the_call(stand):
    log = stand("-DWITHOUT_FEATURES_V2")
    assert [feature.name for feature in library.load_cann().features()] == ["ATTR"]
    assert [entry["call"] for entry in log.entries] == ["aclprofGetSupportedFeatures"]


def test_a_second_version_that_fails_leaves_the_first(stand):
    log = stand()
    stand.fail(GetSupportedFeaturesV2=100001)
    assert [feature.name for feature in library.load_cann().features()] == ["ATTR"]
    assert [entry["code"] for entry in log.entries] == [100001, 0]


def test_no_list_of_features(stand):
    stand("-DWITHOUT_FEATURES", "-DWITHOUT_FEATURES_V2")
    assert library.load_cann().features() is None
    assert not features.is_feature_supported(None, "ATTR")


def test_memory_that_is_no_list_of_features():
    for content in (bytes(512), b"\xff" * 512, b"x" * 512, bytes(range(256)) * 2):
        memory = ctypes.create_string_buffer(content, 1024)
        assert features.decode_features(ctypes.addressof(memory), 1) == []
    assert features.decode_features(0, 3) == []
    memory = ctypes.create_string_buffer(1024)
    assert features.decode_features(ctypes.addressof(memory), 1 << 40) == []


def test_the_layout_is_recognised_without_a_long_text():
    entry = struct.pack("64s16s16s16s16s128s", b"MemoryAccess", b"1", b"2", b"all", b"all", b"no")
    memory = ctypes.create_string_buffer(entry, 1024)
    assert features.decode_features(ctypes.addressof(memory), 1) == [
        features.Feature("MemoryAccess", "1", "2", "all", "all", "no")
    ]


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("ATTR:1:1:all:all", True),
        ("ATTR:0:1:all:all", True),
        ("ATTR:1:2:all:all", True),
        ("ATTR:0:2:all:all", False),
        ("ATTR:1:0:all:all", False),
        ("ATTR:1:1:PTA:all", True),
        ("ATTR:1:1:mindspore:all", True),
        ("ATTR:1:1:tensorflow:all", False),
        ("MemoryAccess:1:1:all:all", False),
    ],
)
def test_features_that_can_be_used(stand, entry, expected):
    stand()
    stand.set("STEPLENS_TEST_FEATURES", entry)
    assert features.is_feature_supported(library.load_cann().features(), "ATTR") is expected


# --- the installation


def test_version_of_cann(monkeypatch, tmp_path):
    assert installation.cann_version() == ""
    monkeypatch.setenv("ASCEND_HOME_PATH", str(tmp_path))
    assert installation.cann_version() == ""
    (tmp_path / "aarch64-linux").mkdir()
    record = tmp_path / "aarch64-linux" / "ascend_toolkit_install.info"
    record.write_bytes(b"package_name=Ascend-cann-toolkit\xff\nversion=8.2.RC1\ninnerversion=V100R001C22\n")
    assert installation.cann_version() == "8.2.RC1"


def test_installation_that_was_not_sourced(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(installation, "_USUAL_HOMES", ("~/Ascend/ascend-toolkit/latest",))
    assert installation.unsourced_home() is None
    in_folder(tmp_path / "Ascend" / "ascend-toolkit" / "latest" / "lib64")
    assert installation.unsourced_home() == tmp_path / "Ascend" / "ascend-toolkit" / "latest"
    monkeypatch.setenv("ASCEND_HOME_PATH", str(tmp_path))
    assert installation.unsourced_home() is None
