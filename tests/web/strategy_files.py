"""Files of a parallel strategy in MindSpore's layout: four ranks, two stages, layers with cuts, redistributions, gradients."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

LAYERS = 3
RANKS = 4
STAGES = 2
#: a name that must be shown as the text that it is
HOSTILE = "<img src=x onerror=document.title='owned'>"


def write_strategy(folder: Path) -> Path:
    """Writes the files of all ranks into a new folder."""
    folder.mkdir(parents=True)
    for rank in range(RANKS):
        stage = rank * STAGES // RANKS
        info = {
            "context_mode": "graph",
            "rank_id": str(rank),
            "rank_size": RANKS,
            "parallel_mode": "semi_auto_parallel",
            "stage_num": STAGES,
        }
        (folder / f"profiler_info_{rank}.json").write_text(json.dumps(info))
        (folder / f"parallel_strategy_{rank}.json").write_text(json.dumps(strategy(rank, stage)))
    return folder


def strategy(rank: int, stage: int) -> dict[str, Any]:
    """One rank's file."""
    devices = [[{"size": str(one)} for one in range(RANKS) if one * STAGES // RANKS == each] for each in range(STAGES)]
    config = {
        "rankId": rank,
        "stageId": stage,
        "parallelType": "semi_auto_parallel",
        "stageDevices": [{"dim": dim} for dim in devices],
    }
    nodes = [node("1", "GetNext" if stage == 0 else "Receive", "Default", [], sr_tag=None if stage == 0 else 0)]
    for layer in range(LAYERS):
        number = 10 * (layer + 1)
        scope = f"Default/network/layer{stage * LAYERS + layer}"
        before = str(number - 7) if layer else "1"
        nodes += [
            node(str(number), "MatMul", scope, [before, "weight"], cut=[[2, 1], [1, 1]], group=f"group{rank}"),
            node(str(number + 1), "AllGather", scope, [str(number)], instance="redistribution_op"),
            node(str(number + 2), "ReLU", scope, [str(number + 1)], cut=[[1, 2]]),
            node(str(number + 3), "Add", scope, [str(number + 2), before], cut=[[1, 2], [1, 2]]),
            node(
                str(number + 4),
                "AllReduce",
                f"Gradients/layer{stage * LAYERS + layer}",
                [str(number + 3)],
                instance="grad_mirror_op",
            ),
        ]
    last = str(10 * LAYERS + 3)
    nodes.append(node("90", "Send" if stage == 0 else HOSTILE, "Default", [last], sr_tag=0 if stage == 0 else None))
    return {"config": config, "graph": {"node": nodes, "parameters": [{"name": "weight"}], "constVals": []}}


def node(
    name: str, kind: str, scope: str, inputs: list[str], *, cut: list[list[int]] | None = None, instance: str = "",
    group: str = "", sr_tag: int | None = None,
) -> dict[str, Any]:  # fmt: skip
    """One operator."""
    attributes = []
    if cut is not None:
        attributes.append({"name": "in_strategy", "value": tupled([tupled([number(one) for one in each]) for each in cut])})
    if group:
        attributes.append({"name": "group", "value": {"dtype": "DT_STRING", "strVal": group}})
    if sr_tag is not None:
        attributes.append({"name": "sr_tag", "value": number(sr_tag)})
    shape = {"dim": [{"size": "32"}, {"size": "64"}]}
    return {
        "name": name, "fullName": f"{scope}/{kind}-op{name}", "opType": kind, "scope": scope, "instanceName": instance,
        "input": [{"name": one, "type": "DATA_EDGE"} for one in inputs], "attribute": attributes,
        "outputType": {"dataType": "DT_TENSOR", "tensorType": {"elemType": "DT_FLOAT32", "shape": shape}},
    }  # fmt: skip


def number(value: int) -> dict[str, Any]:
    return {"dtype": "DT_INT64", "intVal": str(value)}


def tupled(values: list[dict[str, Any]]) -> dict[str, Any]:
    return {"dtype": "DT_TUPLE", "values": values}
