/** The ranks over time: their steps, the operators of one step joined across ranks, and memory or arithmetic over it. */

import type { Delay, Joined, JoinedOperator, RankSteps } from "../../api/types";
import { numberOf } from "../../browser/route";
import { fitted } from "../../charts/fitted";
import { clusterStage, pager } from "../../ui/cluster_controls";
import { h, replace, type Child } from "../../ui/dom";
import { problemBox } from "../../ui/notices";
import type { Context, Page } from "../../ui/page";
import { card, choice, grid, nothing, smallTable } from "../../ui/ui";
import * as format from "../../words/format";
import { named, t } from "../../words/i18n";
import { NARROWEST, type Overlay, keyOf, marey as diagram, stepOverview } from "./marey_view";

/** more elements make a diagram slow, and nobody can tell them apart */
const MOST_BARS = 5000;
const MOST_OPERATORS = 300;
const RANKS_AT_ONCE = 32;
const BUCKETS = 200;
const OVERLAYS = ["none", "memory", "flops"] as const;

export const marey: Page = {
  id: "marey",
  title: "page.marey",
  async show(context) {
    const [steps, strategy] = await Promise.all([context.api.get("marey/steps"), context.api.get("strategy")]);
    if (!steps.rows.length) return nothing(t("marey.none"), t("marey.none.why"));
    const known = [...new Set(steps.rows.map((one) => one.step))];
    const asked = numberOf(context.params, "step");
    const step = asked !== null && known.includes(asked) ? asked : middle(stepsOfMost(steps.rows));
    const place = h("div");
    const detail = h("div", { role: "status" });
    const ranks = Math.min(new Set(steps.rows.map((one) => one.rank)).size, RANKS_AT_ONCE);
    const ask = (): Promise<Joined> =>
      context.api.get("marey/operators", {
        step,
        stage: numberOf(context.params, "stage"),
        from_ns: numberOf(context.params, "start") ?? 0,
        to_ns: numberOf(context.params, "end"),
        limit: Math.min(Math.max(Math.floor(MOST_BARS / ranks), 20), MOST_OPERATORS),
        offset: numberOf(context.params, "offset") ?? 0,
        ranks_at_once: RANKS_AT_ONCE,
        buckets: BUCKETS,
      });
    let found = await ask();
    const draw = (): void =>
      replace(
        place,
        delays(found, pick),
        view(context, found, again, (one) => pick(one)),
        foot(context, found),
      );
    const again = async (start: number | null, end: number | null): Promise<void> => {
      context.note({ start, end });
      try {
        found = await ask();
        draw();
      } catch (error) {
        replace(detail, problemBox(error));
      }
    };
    const pick = (one: JoinedOperator): void => {
      context.note({ operator: keyOf(one) });
      replace(detail, operatorCard(context, found, one));
      draw();
    };
    draw();
    const kept = found.operators.find((one) => keyOf(one) === context.params["operator"]);
    if (kept) replace(detail, operatorCard(context, found, kept));
    return grid(
      overviewCard(context, steps, step),
      card(
        `${t("marey.operators")}: ${t("step")} ${step}`,
        [
          h(
            "div",
            { class: "controls" },
            stepChoice(context, known, step),
            clusterStage(context, steps.job.stages),
            overlayChoice(context, draw),
            windowButtons(context, () => found, again),
          ),
          place,
          detail,
        ],
        { wide: true, note: t("marey.operators.what") },
      ),
      strategy.stages.length
        ? card(
            t("page.strategy"),
            h(
              "p",
              null,
              h(
                "a",
                { href: context.to("strategy") },
                t("strategy.go", { type: strategy.parallel_type, stages: strategy.stages.length }),
              ),
            ),
          )
        : null,
    );
  },
};

/** The steps that the most ranks have: those of fewer cannot be compared. */
function stepsOfMost(rows: RankSteps["rows"]): number[] {
  const ranks = new Map<number, number>();
  for (const one of rows) ranks.set(one.step, (ranks.get(one.step) ?? 0) + 1);
  const most = Math.max(...ranks.values());
  return [...ranks].filter(([, count]) => count === most).map(([step]) => step);
}

/** A step that is neither the first, which compiles and fills queues, nor cut off by the end. */
const middle = (steps: readonly number[]): number => steps[Math.floor(steps.length / 2)] ?? 0;

function overviewCard(context: Context, steps: RankSteps, step: number): Child {
  const ways = [...new Set(steps.rows.map((one) => one.aligned_by))];
  return card(
    t("marey.steps"),
    [
      h(
        "div",
        { class: "scroll" },
        fitted(
          (width) =>
            stepOverview(steps.rows, step, t("marey.steps"), width, (picked) =>
              context.visit({ step: picked, start: null, end: null, operator: null }),
            ),
          NARROWEST,
          context.signal,
        ),
      ),
      steps.left_out ? h("p", { class: "note" }, t("marey.steps.left_out", { count: format.count(steps.left_out) })) : null,
    ],
    {
      wide: true,
      note: [t("marey.steps.what"), " ", ways.map((way) => named("value", `aligned.${way.replaceAll(" ", "_")}`, way)).join(" ")],
    },
  );
}

function stepChoice(context: Context, steps: readonly number[], step: number): HTMLElement {
  return choice(
    t("step"),
    steps.map((one): [string, string] => [String(one), `${t("step")} ${one}`]),
    String(step),
    (value) => context.visit({ step: value, start: null, end: null, operator: null }),
  );
}

const overlayOf = (context: Context): Overlay => OVERLAYS.find((one) => one === context.params["load"]) ?? "none";

function overlayChoice(context: Context, draw: () => void): HTMLElement {
  return choice(
    t("marey.load"),
    OVERLAYS.map((one): [string, string] => [one, named("value", `marey.load.${one}`, one)]),
    overlayOf(context),
    (value) => {
      context.note({ load: value === "none" ? null : value });
      draw();
    },
  );
}

/** The window in steps of a half, for those who do not drag. */
function windowButtons(
  context: Context,
  found: () => Joined,
  again: (start: number | null, end: number | null) => Promise<void>,
): Child {
  const move = (shift: number, scale: number) => (): void => {
    const [start, end] = windowOf(context, found());
    const [half, centre] = [((end - start) / 2) * scale, (start + end) / 2 + shift * (end - start)];
    const [from, to] = [Math.max(Math.round(centre - half), 0), Math.min(Math.round(centre + half), found().end_ns)];
    void again(from, Math.max(to, from + 1));
  };
  const button = (text: string, label: string, act: () => void): HTMLElement =>
    h("button", { type: "button", title: label, "aria-label": label, onclick: act }, text);
  return h(
    "span",
    { class: "button-row" },
    button("←", t("marey.earlier"), move(-0.5, 1)),
    button("→", t("marey.later"), move(0.5, 1)),
    button("+", t("marey.closer"), move(0, 0.5)),
    button("−", t("marey.wider"), move(0, 2)),
    button(t("marey.whole"), t("marey.whole"), () => void again(null, null)),
  );
}

function windowOf(context: Context, found: Joined): [number, number] {
  const start = Math.min(numberOf(context.params, "start") ?? 0, found.end_ns);
  return [start, Math.max(Math.min(numberOf(context.params, "end") ?? found.end_ns, found.end_ns), start + 1)];
}

function view(
  context: Context,
  found: Joined,
  again: (start: number, end: number) => Promise<void>,
  onPick: (one: JoinedOperator) => void,
): Child {
  const [from, to] = windowOf(context, found);
  return h(
    "div",
    { class: "scroll" },
    fitted(
      (width) =>
        diagram(found, {
          width,
          label: t("marey.operators"),
          from,
          to,
          overlay: overlayOf(context),
          chosen: context.params["operator"] ?? "",
          onPick,
          onBrush: (start, end) => void again(start, end),
        }),
      NARROWEST,
      context.signal,
    ),
  );
}

function foot(context: Context, found: Joined): Child {
  const offset = numberOf(context.params, "offset") ?? 0;
  const known = overlayOf(context) === "none" || found.loads.length > 0;
  return [
    h(
      "p",
      { class: "note", role: "status" },
      !found.matching
        ? t("marey.operators.none")
        : found.operators.length < found.matching
          ? t("marey.shown", { shown: format.count(found.operators.length), count: format.count(found.matching) })
          : t("marey.all", { count: format.count(found.matching) }),
    ),
    known ? null : h("p", { class: "note" }, t("marey.load.unknown")),
    pager(offset, found.ranks.length, found.matching_ranks, RANKS_AT_ONCE, (to) => context.visit({ offset: to || null })),
  ];
}

/** Where a rank falls behind, and what it did meanwhile; everything after that inherits the delay. */
function delays(found: Joined, onPick: (one: JoinedOperator) => void): Child {
  const [first] = found.delays;
  if (!first) return found.ranks.length > 1 && found.matching ? h("p", { class: "sentence" }, t("marey.delay.none")) : null;
  const doing = (one: Delay): string =>
    one.doing.map((work, place) => `${format.shorten(work, 60)} ${format.time(one.doing_ns[place]!)}`).join(", ")
    || t("marey.delay.nothing");
  const name = (one: Delay): Child => {
    const operator = found.operators.find((other) => keyOf(other) === keyOf(one));
    const said = `${format.shorten(one.name, 80)} #${one.number + 1}`;
    return operator ? h("button", { type: "button", class: "plain", onclick: () => onPick(operator) }, said) : said;
  };
  const stages = new Set(found.ranks.map((one) => one.stage)).size > 1;
  const heads = [
    t("rank"),
    t("marey.delay.before"),
    ...(stages ? [t("stage")] : []),
    t("marey.delay.grown"),
    t("marey.delay.from"),
    t("marey.delay.to"),
    t("marey.delay.doing"),
  ];
  const rows = found.delays.map((one) => [
    t("rank.n", { number: one.rank }),
    name(one),
    ...(stages ? [String(one.stage)] : []),
    format.time(one.grown_ns),
    format.time(one.from_ns),
    format.time(one.start_ns),
    doing(one),
  ]);
  const numbers = stages ? [3, 4, 5] : [2, 3, 4];
  return [
    h(
      "p",
      { class: "sentence" },
      h(
        "b",
        null,
        t("marey.delay", { rank: first.rank, time: format.time(first.grown_ns), name: format.shorten(first.name, 60) }),
      ),
      " ",
      t("marey.delay.meanwhile", { doing: doing(first) }),
    ),
    h("h3", null, t("marey.widest")),
    smallTable(t("marey.widest"), heads, rows, numbers),
  ];
}

function operatorCard(context: Context, found: Joined, one: JoinedOperator): Child {
  const first = Math.min(...one.start_ns);
  const trace = new Map(found.ranks.map((rank) => [rank.rank, rank.trace]));
  const rows = one.ranks.map((rank, place) => [
    t("rank.n", { number: rank }),
    format.time(one.start_ns[place]!),
    format.time(one.end_ns[place]! - one.start_ns[place]!),
    `+${format.time(one.start_ns[place]! - first)}`,
    h(
      "a",
      { href: context.to("timeline", { rank: trace.get(rank) ?? null, step: found.step, find: one.name }) },
      t("page.timeline"),
    ),
  ]);
  return [
    h("h3", null, `${one.name} #${one.number + 1}`),
    smallTable(one.name, [t("rank"), t("marey.start"), t("marey.length"), t("marey.behind"), ""], rows, [1, 2, 3]),
  ];
}
