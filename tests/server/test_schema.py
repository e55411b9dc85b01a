"""The OpenAPI document against the server itself: made-up requests find no crash and no answer that is not described."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import content_type_conformance, response_schema_conformance, status_code_conformance

from .conftest import DEADLINE_S, TOKEN, Client, Start, sample

#: made-up requests per address, and per address of which these met nothing that exists
EXAMPLES = 12
MORE_EXAMPLES = 400
_OF_RUN = "GET /api/runs/{run}/"
#: these want names that nobody makes up, or a training or plan that the runs lack
UNFILLED = {
    "POST /api/runs/{run}/reopen",
    "POST /api/runs/{run}/captures",
    # the run is one recording, no folder of versions
    _OF_RUN + "history",
    "POST /api/runs/{run}/history/opened",
    _OF_RUN + "tables/{table}/csv",
    _OF_RUN + "shapes/series",
    _OF_RUN + "memory/graphs/{graph}",
    _OF_RUN + "memory/graphs/{graph}/tensors",
    _OF_RUN + "strategy/operator",
    _OF_RUN + "marey/operators",
}
DOCUMENTATION = (Path(__file__).resolve().parents[2] / "docs" / "view.md").read_text()
CHECKS = (not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance)


@pytest.fixture(scope="module")
def client(serve: Start, recorded: Path) -> Client:
    samples = sample("ascend_pytorch", "text_level1"), sample("mindspore", "profiler"), sample("mindspore", "parallel_strategy")
    return serve([recorded, *samples])


@pytest.mark.slow
def test_every_request_has_an_answer_that_is_described(client: Client) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    schema = schemathesis.openapi.from_url(
        f"http://127.0.0.1:{client.port}/api/openapi.json", headers=headers, timeout=DEADLINE_S
    )
    operations = [found.ok() for found in schema.get_all_operations()]
    assert len(operations) > 20
    tables = [*(table["name"] for table in client.get("/api/runs/0/tables")), "nothing"]
    failures = []
    silent = set()
    for operation in operations:
        try:
            answers = answers_to(operation, tables, headers, EXAMPLES)
            if 200 not in answers and operation.label not in UNFILLED:
                answers = answers_to(operation, tables, headers, MORE_EXAMPLES, until=200)
            if 200 not in answers:
                silent.add(operation.label)
        except Exception as error:  # every address is looked at before the test fails
            failures.append(f"{operation.label}: {error}")
    assert not failures, "\n\n".join(failures)
    # what was made up did reach the answers
    assert silent <= UNFILLED


def answers_to(
    operation: schemathesis.APIOperation, tables: list[str], headers: dict[str, str], examples: int, until: int | None = None
) -> set[int]:
    """Made-up requests to one address, until a status comes: checks every answer, and gives the statuses that came."""
    statuses = set()

    @settings(max_examples=examples, suppress_health_check=list(HealthCheck), database=None)
    @given(case=operation.as_strategy())
    def answer(case: schemathesis.Case) -> None:
        if until in statuses:
            return
        with_names_that_exist(case, tables)
        response = case.call(headers=headers, timeout=DEADLINE_S)
        statuses.add(response.status_code)
        case.validate_response(response, checks=CHECKS)

    answer()
    return statuses


def with_names_that_exist(case: schemathesis.Case, tables: list[str]) -> None:
    """Most made-up numbers and names name nothing: turn most of them into some that do."""
    named = case.path_parameters
    if case.path.endswith("/reopen"):
        # asked for again and again, the other requests would find nothing open
        named["run"] = 99
    elif isinstance(named.get("run"), int):
        named["run"] %= 5
    if isinstance(named.get("table"), str):
        named["table"] = tables[sum(map(ord, named["table"])) % len(tables)]
    for name in ("event", "series"):
        if isinstance(named.get(name), int):
            named[name] %= 20
    query = case.query if isinstance(case.query, dict) else {}
    for name, least, names in (("step", 1, 12), ("stage", 1, 2), ("op", 0, 4)):
        if isinstance(query.get(name), int):
            query[name] = least + query[name] % names
    if isinstance(query.get("node"), str):
        query["node"] = str(1 + sum(map(ord, query["node"])) % 3)
    if isinstance(query.get("traces"), str) and re.fullmatch("[0-9]+(,[0-9]+)*", query["traces"]):
        # of the form that holds several, most of the time
        query["traces"] = ",".join(str(int(one) % 2) for one in query["traces"].split(","))
        if len(query["traces"]) % 4 == 1:
            query["to"] = "chrome"
    if {"start_ns", "end_ns"} <= query.keys() and all(isinstance(query[name], int) for name in ("start_ns", "end_ns")):
        query["start_ns"], query["end_ns"] = sorted((query["start_ns"], query["end_ns"]))


def test_the_document_is_typed(client: Client) -> None:
    document = client.get("/api/openapi.json")
    names = [operation["operationId"] for path in document["paths"].values() for operation in path.values()]
    assert len(names) == len(set(names))
    for path, operations in document["paths"].items():
        assert path.removeprefix("/api/runs/{run}") in DOCUMENTATION, path
        for operation in operations.values():
            content = operation["responses"]["200"].get("content", {})
            assert content, path
            assert all(media.get("schema") for media in content.values()), path
