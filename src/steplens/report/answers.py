"""Which answers of the server a report holds: every address, for every value of parameters whose values are known.

An address that takes nothing but a trace, a step, an operation of the data pipeline, a moment or one of its own choices is asked
for all of them, so that a new page needs no line here. Addresses with other parameters are in ``ELSEWHERE``, with the module
that answers for them, or in ``SERVER_ONLY``.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from steplens.report.ask import Answer, InProcessClient
from steplens.report.parts import Parts
from steplens.server.http.page_store import MANY_TRACES
from steplens.server.runs import OpenedRun

RUN = "/api/runs/{run}"

#: addresses -> the module of the front end that answers from what the report has
ELSEWHERE = {
    "/api/session": "embedded",
    "/api/compare": "embedded",
    "/api/compare/calls": "embedded",
    "/api/compare/findings": "embedded",
    f"{RUN}/search": "embedded",
    f"{RUN}/tables/{{table}}": "embedded_table",
    f"{RUN}/shapes/series": "embedded_shapes",
    f"{RUN}/shapes/runs": "embedded_shapes",
    f"{RUN}/memory/graphs/{{graph}}/tensors": "embedded_pages",
    f"{RUN}/strategy/graph": "embedded_strategy",
    f"{RUN}/strategy/operator": "embedded_strategy",
    f"{RUN}/strategy/find": "embedded_strategy",
    f"{RUN}/timeline/tile": "embedded_timeline",
    f"{RUN}/timeline/events/{{event}}": "embedded_timeline",
    f"{RUN}/timeline/selection": "embedded_timeline",
    f"{RUN}/timeline/search": "embedded_timeline",
    f"{RUN}/timeline/occurrences": "embedded_timeline",
    f"{RUN}/timeline/flows": "embedded_timeline",
    f"{RUN}/timeline/series/{{series}}": "embedded_timeline",
}
#: what only a server can answer; the pages say so
SERVER_ONLY = tuple(
    f"{RUN}/{path}" for path in ("live", "captures", "history", "tables/{table}/csv", "download", "timeline/flame")
)

#: parameters that say how much to answer, not what: a page gets what there is
HOW_MUCH = {"points": 1000, "limit": None, "most": None, "buckets": 200, "ranks_at_once": None}
#: parameters by which the front end itself chooses among ``rows``, and sorts them
OF_ROWS = ("sort", "descending", "offset", "source", "destination", "transport")
#: rows of an answer that has such parameters
_MOST_ROWS = 1000
#: answers to one address, over all values of its parameters
_MOST = 1500
_MOST_STEPS = 200
#: moments at which a report knows what was allocated, besides the peaks: of one trace, and of all together but for a few of each
_MOMENTS = 48
_MOMENTS_OF_ALL = 768
_LEAST_MOMENTS = 6


@dataclass(frozen=True)
class Parameter:
    """A parameter of an address: its name, whether it must be given, its choices where it has a list of them, and its default."""

    name: str
    required: bool
    choices: tuple[Any, ...]
    default: Any


def address_parameters(asker: InProcessClient) -> dict[str, list[Parameter]]:
    """The parameters of every address that can be got, besides the run."""
    of_path = {}
    for path, methods in asker.app.openapi()["paths"].items():
        if "get" in methods:
            described = methods["get"].get("parameters", [])
            of_path[path] = [_parse_parameter(parameter) for parameter in described if parameter["name"] != "run"]
    return of_path


def _parse_parameter(told: dict[str, Any]) -> Parameter:
    schema = told["schema"]
    parts = schema.get("anyOf", [schema])
    choices = [value for part in parts for value in part.get("enum", [part["const"]] if "const" in part else [])]
    if any(part.get("type") == "boolean" for part in parts):
        choices = [False, True]
    return Parameter(told["name"], bool(told.get("required")), tuple(choices), schema.get("default"))


class Values:
    """The values of parameters that are known for a run.

    Args:
        asker: of the run.
        shown: the run.
    """

    def __init__(self, asker: InProcessClient, shown: OpenedRun) -> None:
        self._asker = asker
        self._run = f"runs/{shown.id}"
        self.traces = len(shown.run.traces)
        self._known: dict[tuple[str, int], Sequence[Any]] = {}

    def of(self, name: str, trace: int | None) -> Sequence[Any] | None:
        """The values of a parameter for a trace (None: where no trace is given); None where they are not known."""
        find = _VALUES.get(name)
        if find is None:
            return None
        key = name, trace or 0
        if key not in self._known:
            self._known[key] = find(self, trace or 0)
        return self._known[key]

    def rows(self, path: str, trace: int | None = None, member: str | None = None) -> Any:
        """The list that an address of the run answers with, or a member of the answer; empty where there is no answer."""
        answer = self._asker.get(f"{self._run}/{path}", {} if trace is None else {"trace": trace})
        if not answer.ok:
            return []
        return answer.json if member is None else answer.json[member]

    def stages(self, _: int) -> Sequence[int]:
        """The numbers of the pipeline stages of the job."""
        cluster = self._asker.get(f"{self._run}/cluster/steps")
        stage_numbers = {row["stage"] for row in self.rows("strategy", member="stages")}
        return sorted(stage_numbers | (set(range(cluster.json["job"]["stages"])) if cluster.ok else set()))

    def moments(self, trace: int) -> Sequence[int]:
        """The peak of every series of memory, and moments that are evenly spread over the run."""
        laid_out = self._asker.get(f"{self._run}/timeline", {"trace": trace})
        if not laid_out.ok:
            return []
        start, end = laid_out.json["start_ns"], laid_out.json["end_ns"] + 1
        moment_count = min(max(_MOMENTS_OF_ALL // self.traces, _LEAST_MOMENTS), _MOMENTS)
        found = set()
        for series in laid_out.json["series"]:
            if not series["label"].startswith("memory "):
                continue
            query = {"trace": trace, "start_ns": start, "end_ns": end, "points": 1200}
            curve = self._asker.get(f"{self._run}/timeline/series/{series['series']}", query).json
            if curve["max"]:
                found.add(curve["time_ns"][curve["max"].index(max(curve["max"]))])
                found.update(curve["time_ns"][:: max(len(curve["time_ns"]) // moment_count, 1)])
        return sorted(found)


_VALUES: dict[str, Callable[[Values, int], Sequence[Any]]] = {
    "trace": lambda values, _: range(values.traces),
    "rank": lambda values, _: sorted({row["rank"] for row in values.rows("ranks") if row["rank"] is not None}),
    "stage": Values.stages,
    "step": lambda values, trace: [row["step"] for row in values.rows("steps", trace, "steps") if row["step"] is not None][
        :_MOST_STEPS
    ],
    # the picture of very many ranks has a choice of them; pages of few have no such picture
    "metric": lambda values, _: values.rows("cluster/rank-steps", member="metrics") if values.traces >= MANY_TRACES else (),
    "op": lambda values, trace: [row["id"] for row in values.rows("pipeline", trace, "operations")],
    "graph": lambda values, trace: [row["graph"] for row in values.rows("memory/graphs", trace)],
    "time_ns": Values.moments,
}


@dataclass(frozen=True)
class AddressAnswers:
    """What an address answers, to every question that a report holds.

    Attributes:
        defaults: of its parameters: a page may ask in so many words for what is meant without them.
        answers: the question (``key``), the status and the body of each answer.
        asked: how many questions there are; of very many only the first ones were asked.
    """

    defaults: dict[str, Any]
    answers: list[tuple[str, int, bytes]]
    asked: int


def answerable_addresses(asker: InProcessClient) -> list[str]:
    """The addresses that a report answers with what the server answered."""
    return [path for path in address_parameters(asker) if path.startswith(RUN) and path not in (*ELSEWHERE, *SERVER_ONLY)]


def ask_address(asker: InProcessClient, values: Values, shown: OpenedRun, path: str) -> AddressAnswers:
    """Ask one of ``addresses`` everything that a report holds."""
    path_parameters = address_parameters(asker)[path]
    path_of_run = _front_end_path(path, shown)
    within = re.findall(r"\{(\w+)\}", path_of_run)
    replies = []
    count = 0
    for count, query in enumerate(parameter_combinations(path_parameters, values), 1):
        if count > _MOST:
            continue
        place = path_of_run.format(**{name: query.pop(name) for name in within})
        answer = ask_question(asker, place, query, path_parameters)
        if answer.status < 500:
            replies.append((question_key(place, query), answer.status, answer.body))
    return AddressAnswers(
        {parameter.name: parameter.default for parameter in path_parameters if parameter.default is not None}, replies, count
    )


def _front_end_path(path: str, shown: OpenedRun) -> str:
    """An address as the front end calls it."""
    return path.removeprefix("/api/").replace("{run}", str(shown.id))


def add_answers(shown: OpenedRun, answered: Mapping[str, AddressAnswers], parts: Parts) -> None:
    """Put the answers about a run into a report, by their address: one part with all of them, equal ones once."""
    bodies: dict[bytes, int] = {}
    numbers_of: dict[str, list[int]] = {}
    defaults: dict[str, dict[str, Any]] = {}
    for path, address in answered.items():
        path_of_run = _front_end_path(path, shown)
        defaults[path_of_run] = address.defaults
        for question, status, body in address.answers:
            numbers_of[question] = [status, bodies.setdefault(body, len(bodies))]
        if address.asked > _MOST:
            parts.lost("answers", shown.id, None, path_of_run, _MOST, address.asked, "many")
    # bodies are JSON already
    joined = b"[" + b",".join(bodies) + b"]"
    parts.require(f"answers/{shown.id}", {"known": numbers_of, "defaults": defaults, "how_much": [*HOW_MUCH], "of_rows": OF_ROWS})
    parts.require(f"bodies/{shown.id}", joined)


def ask_question(asker: InProcessClient, path: str, query: dict[str, Any], wanted: Sequence[Parameter]) -> Answer:
    """What an address answers to a query of ``queries``, with as much as a report holds of it."""
    names = {parameter.name for parameter in wanted}
    amounts = {name: amount for name, amount in HOW_MUCH.items() if name in names and amount is not None}
    if {"offset", "limit"} <= names and "ranks_at_once" not in names:
        amounts["limit"] = _MOST_ROWS
    return asker.get(path, {**query, **amounts})


def parameter_combinations(wanted: Sequence[Parameter], values: Values) -> Iterator[dict[str, Any]]:
    """Every combination of the known values of the parameters, and of leaving them out where that is allowed."""
    traced = next((parameter for parameter in wanted if parameter.name == "trace"), None)
    free_parameters = [parameter for parameter in wanted if parameter.name not in ("trace", *HOW_MUCH, *OF_ROWS)]
    traces: list[int | None] = [*([] if traced is not None and traced.required else [None])]
    traces += list(values.of("trace", 0) or ()) if traced is not None else []
    for trace in traces:
        choices = []
        for parameter in free_parameters:
            known = parameter.choices or values.of(parameter.name, trace) or ()
            choices.append([*([] if parameter.required else [None]), *known])
        for picked in itertools.product(*choices):
            query = {parameter.name: value for parameter, value in zip(free_parameters, picked, strict=True) if value is not None}
            yield query if trace is None else {"trace": trace, **query}


def question_key(path: str, query: dict[str, Any]) -> str:
    """What the front end calls a question: the path and the sorted parameters."""
    texts = {name: str(value).lower() if isinstance(value, bool) else value for name, value in query.items()}
    tail = "&".join(f"{name}={texts[name]}" for name in sorted(texts))
    return f"{path}?{tail}" if tail else path
