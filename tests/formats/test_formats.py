"""Names of formats that are told in one direction and understood in the other."""

from __future__ import annotations

import re

import pytest

from steplens.formats import ascend_database, ascend_results, ascend_terms, mindspore, trace_view
from steplens.formats.ascend_samples import NUMBER, OPTIONAL_NUMBER, SAMPLES


@pytest.mark.parametrize("table", SAMPLES)
def test_the_name_of_a_counter_tells_its_column_and_its_keys(table: str) -> None:
    samples = SAMPLES[table]
    keys = {key: "3" if kind in (NUMBER, OPTIONAL_NUMBER) else "read" for key, kind in samples.keys.items()}
    for column, (template, _, _) in samples.values.items():
        name = template.format(**keys)
        matches = {other: match for other in samples.values if (match := re.search(samples.pattern(other), name))}
        assert list(matches) == [column]
        assert matches[column].groupdict() == {**keys, "value": ""}


def test_names_of_counters_that_other_timelines_shorten() -> None:
    assert re.search(SAMPLES["DDR"].pattern("read"), "Read")
    assert re.search(SAMPLES["HCCS"].pattern("txThroughput"), "Tx")
    found = re.search(SAMPLES["ACC_PMU"].pattern("readOstLevel"), "read_ost")
    assert found is not None and found["accId"] is None
    assert not re.search(SAMPLES["CPU_USAGE"].pattern("usage"), "CPU")


def test_sampled_columns_are_columns_of_their_tables() -> None:
    for table, samples in SAMPLES.items():
        if table in ascend_database.PROFILER_TABLES:
            columns = ascend_database.columns(ascend_database.PROFILER_TABLES[table])
            assert {*samples.values, *samples.keys} <= set(columns), table
    assert set(SAMPLES) - set(ascend_database.PROFILER_TABLES) == {"QOS"}, "only read"


def test_columns_that_are_read_and_written_are_columns_of_the_layout() -> None:
    tables = {**ascend_database.PROFILER_TABLES, **ascend_database.ANALYSIS_TABLES}
    for table, named in (
        ("OP_MEMORY", ascend_database.ALLOCATION_TOTALS),
        ("COMPUTE_TASK_INFO", {**ascend_database.COMPUTE_TEXTS, **ascend_database.COMPUTE_SHAPES}),
        (ascend_database.INNER_TASKS, {**ascend_database.INNER_ENUMS, **trace_view.PART_COLUMNS}),
        (ascend_database.BANDWIDTH_TABLE, ascend_database.BANDWIDTH_COLUMNS),
        (ascend_database.MATRIX_TABLE, ascend_database.MATRIX_COLUMNS),
        (ascend_database.STEP_TABLE, dict.fromkeys(ascend_results.STEP_COLUMNS.values())),
    ):
        assert set(named) <= set(ascend_database.columns(tables[table])), table
    for table, indexed in ascend_database.INDICES.values():
        assert set(indexed.split(", ")) <= set(ascend_database.columns(tables[table])), table


def test_a_number_of_an_enumeration_has_one_name() -> None:
    for table, numbers in ascend_database.ENUMS.items():
        assert len(set(numbers.values())) == len(numbers), table


def test_layers_of_calls_begin_the_names_that_they_are_known_by() -> None:
    for layer, prefix in ascend_terms.CALL_PREFIXES.items():
        assert ascend_terms.LAYERS[prefix.removesuffix("@")] == layer
    assert set(ascend_terms.CALL_PREFIXES) == set(ascend_terms.LAYERS.values())
    assert set(ascend_terms.CALL_PREFIXES) <= set(ascend_database.API_TYPES)


def test_places_of_layers_fit_into_a_process_id() -> None:
    places = [*trace_view.PLACES.values(), *trace_view.COUNTER_PLACES.values()]
    assert len(set(places)) == len(places)
    assert max(places) < 1 << (trace_view.LAYER_BITS - trace_view.DEVICE_BITS)
    assert max(places) < trace_view.LAST_PLACE
    assert trace_view.HOST == (1 << trace_view.DEVICE_BITS) - 1


@pytest.mark.parametrize("name", [*mindspore.FILES.values(), *mindspore.PIPELINE_FILES.values()])
def test_a_file_of_mindspore_is_known_by_its_name(name: str) -> None:
    parts = {"rank": "12", "mode": "data-parallel", "stages": "2", "size": "8"}
    match = mindspore.pattern(name).match(name.format(**parts))
    assert match is not None
    assert match.groupdict().items() <= parts.items()
    assert not mindspore.pattern(name).match(f"x{name.format(**parts)}")


def test_files_of_mindspore_that_some_versions_call_otherwise() -> None:
    points = mindspore.pattern(mindspore.FILES["step_points"]).match("step_trace_point_info.json")
    assert points is not None and points["rank"] is None
    assert mindspore.pattern(mindspore.PIPELINE_FILES["receive"]).match("minddata_aicpu_0.json")
