/** Questions with parameters of which no report can hold every answer: it has what they are worked out of. */

import type { NodeTensors } from "../api/types";
import { SHAPES, type Shapes } from "./embedded_shapes";
import { type Operators, STRATEGY } from "./embedded_strategy";
import type { Query } from "./questions";

/** a part of the report by its name; null where it has none of this name */
type Read = <A>(name: string) => Promise<A | null>;

/** tensors that one answer has */
const TENSORS = 100;

/** The answer to a question about a run; null where it is no such question, or where the report lacks what it takes. */
export async function pageAnswer(read: Read, run: number, rest: string, query: Query): Promise<unknown> {
  const trace = Number(query["trace"] ?? 0);
  const shapes = /^shapes\/(series|runs)$/.exec(rest);
  if (shapes) {
    const held = await read<Shapes>(`shapes/${run}/${trace}/${String(query["level"] ?? "operator")}`);
    return held && SHAPES[shapes[1] as keyof typeof SHAPES](held, query);
  }
  const strategy = /^strategy\/(graph|operator|find)$/.exec(rest);
  if (strategy) {
    const held = await read<Operators>(`strategy/${run}/${Number(query["stage"] ?? 1)}`);
    return held && STRATEGY[strategy[1] as keyof typeof STRATEGY](held, query);
  }
  const plan = /^memory\/graphs\/(\d+)\/tensors$/.exec(rest);
  if (plan) {
    const held = await read<NodeTensors["tensors"]>(`plan/${run}/${trace}/${plan[1]!}`);
    return held && tensorsAt(held, Number(query["node"] ?? 0), Number(query["limit"] ?? TENSORS));
  }
  return null;
}

/** The tensors that live at a node; the part has the largest first. */
function tensorsAt(held: NodeTensors["tensors"], node: number, limit: number): NodeTensors {
  const found = held.filter((one) => one.life_start <= node && node <= one.life_end);
  return { node, count: found.length, bytes: found.reduce((sum, one) => sum + one.bytes, 0), tensors: found.slice(0, limit) };
}
