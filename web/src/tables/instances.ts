/** What is behind a row of statistics, one by one: the tasks of a type, the calls of an operator. */

import type { Condition, Row, TableShown } from "../api/types";
import { h, type Child } from "../ui/dom";
import type { Context } from "../ui/page";
import { card } from "../ui/ui";
import { named, t } from "../words/i18n";
import { table } from "./table";

const COLUMNS = {
  recorded_kernels: ["name", "type", "core", "device", "stream", "step", "start_ns", "end_ns", "input_shapes", "input_types"],
  recorded_ops: ["name", "start_ns", "end_ns", "self_ns", "step", "input_shapes", "input_types", "module", "stack"],
} as const;

export interface Instances {
  source: keyof typeof COLUMNS;
  trace: number | null;
  where: readonly Condition[];
  title: string;
  /** address of the page without this card */
  away: string;
}

/** A card with the recorded rows that satisfy some conditions; nothing without conditions. */
export function instancesCard(context: Context, listed: readonly TableShown[], one: Instances): Child {
  const { source, trace, where } = one;
  if (!where.length || !listed.some((other) => other.name === source)) return null;
  const type = where.find((other) => other.column === "type");
  return card(
    one.title,
    [
      h("p", null, h("a", { href: one.away }, t("instances.away"))),
      table(context, {
        name: source,
        id: "instances",
        trace,
        where: [...where],
        columns: COLUMNS[source],
        height: 380,
        links: {
          name: (row: Row) => context.to("timeline", { ...(trace === null ? {} : { rank: trace }), find: String(row["name"]) }),
        },
      }),
      // what the framework knows of the operators of this type: full names, shapes and formats, arithmetic
      type
        ? h(
            "details",
            null,
            h("summary", null, named("table", "core_operators")),
            table(context, {
              name: "core_operators",
              id: "described",
              trace,
              where: [type],
              height: 260,
              sort: [{ column: "average_ns", descending: true }],
            }),
          )
        : null,
    ],
    { wide: true, note: t("instances.what") },
  );
}
