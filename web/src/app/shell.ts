/** What surrounds every page: the name of the run, the menu, the search box, language and colours. */

import { RunApi } from "../api/client";
import type { Hit, Session, TraceState } from "../api/types";
import { formatRoute } from "../browser/route";
import { keep, kept } from "../browser/storage";
import { THEMES, type Theme, chosenTheme, setTheme } from "../browser/theme";
import { GROUPS, type Group } from "../pages";
import { placeText } from "../ui/rank_picker";
import { findRows, isMany } from "../ui/rank_places";
import { report } from "../report/embedded";
import { h, replace } from "../ui/dom";
import { missingParts } from "../ui/not_recorded";
import { HISTORY, isHistoryAlone, type Page } from "../ui/page";
import { reportBadge } from "../ui/report_note";
import * as format from "../words/format";
import { LANGUAGES, type Language, current, named, setLanguage, t } from "../words/i18n";
import { adviceCount, damageMark } from "./run_mark";

const TYPING_MS = 200;
/** ranks that a search lists */
const RANKS_FOUND = 6;

export class Shell {
  readonly main = h("main", { id: "main" });
  private readonly header = h("header", { class: "top" });
  private readonly menu = h("nav", { class: "menu" });
  private readonly adviceCount = adviceCount();
  private readonly damage = damageMark();
  private readonly skip = h("a", { class: "skip", href: "#main" });

  /** `again` shows the page anew, in another language. */
  constructor(
    root: HTMLElement,
    private readonly again: () => void,
  ) {
    this.skip.addEventListener("click", (event) => {
      event.preventDefault();
      (this.main.querySelector("h1") ?? this.main).focus();
    });
    replace(root, this.skip, this.header, h("div", { class: "body" }, h("div", { class: "side" }, this.menu), this.main));
  }

  /** The frame of a page. */
  frame(session: Session, run: number, page: string): void {
    document.documentElement.lang = current();
    this.skip.textContent = t("skip");
    this.menu.setAttribute("aria-label", t("menu"));
    this.main.dataset["page"] = page;
    this.adviceCount.begin(keyOf(session, run));
    this.damage.begin(keyOf(session, run));
    replace(
      this.menu,
      h(
        "ul",
        null,
        GROUPS.map((group) => this.group(group, session, run, page)),
      ),
    );
    replace(
      this.header,
      h("a", { class: "brand", href: formatRoute(run, "overview") }, "steplens"),
      this.runs(session, run, page),
      reportBadge(run),
      this.damage.element,
      searchBox(run, session.runs[run]?.traces ?? []),
      this.picker(t("language"), LANGUAGES, current(), (value) => {
        setLanguage(value as Language);
        this.again();
      }),
      this.picker(t("theme"), Object.fromEntries(THEMES.map((one) => [one, t(`theme.${one}`)])), chosenTheme(), (value) =>
        setTheme(value as Theme),
      ),
    );
  }

  /** Say how much advice there is about a run, and whether it is damaged; after the page, whose answers come first. */
  advise(session: Session, run: number): void {
    if (!session.runs[run]?.generation) return;
    const key = keyOf(session, run);
    void this.damage.show(run, key);
    void this.adviceCount.show(run, key);
  }

  /** The pages of a group that the run has something for; a heading over one page would say the same twice. */
  private group(group: Group, session: Session, run: number, current: string): HTMLElement | null {
    const pages = group.pages.filter((page) => isOffered(page, session, run));
    if (!pages.length) return null;
    const links = pages.map((page) =>
      h(
        "a",
        { href: formatRoute(run, page.id), "aria-current": page.id === current ? "page" : null },
        t(page.title),
        page.id === "advice" ? this.adviceCount.element : null,
      ),
    );
    if (group.title === null || pages.length === 1) return h("li", null, links);
    const name = `${MENU}.${group.id}`;
    const inside = pages.some((page) => page.id === current);
    const list = h(
      "details",
      { open: inside || (kept(name) ?? (group.open ? "open" : "closed")) === "open" },
      // a page inside opens its group without being what the user wants
      h("summary", { onclick: () => keep(name, list.open ? "closed" : "open") }, t(group.title)),
      h(
        "ul",
        null,
        links.map((link) => h("li", null, link)),
      ),
    );
    return h("li", null, list);
  }

  private runs(session: Session, run: number, page: string): HTMLElement {
    const shown = session.runs[run];
    if (session.runs.length < 2) return h("span", { class: "run-name", title: shown?.path }, shown?.name ?? "");
    const list = h(
      "select",
      { "aria-label": t("run"), class: "run-name", onchange: () => (location.hash = formatRoute(Number(list.value), page)) },
      session.runs.map((one) => h("option", { value: one.run, selected: one.run === run }, one.name)),
    );
    return list;
  }

  private picker(
    label: string,
    items: Readonly<Record<string, string>>,
    chosen: string,
    onPick: (value: string) => void,
  ): HTMLElement {
    const list = h(
      "select",
      { onchange: () => onPick(list.value) },
      Object.entries(items).map(([value, text]) => h("option", { value, selected: value === chosen }, text)),
    );
    return h("label", { class: "choice" }, h("span", null, label), list);
  }
}

/** which groups of the menu are open, by their name */
const MENU = "steplens.menu";

/** Whether the menu of a run has a page. */
const isOffered = (page: Page, session: Session, run: number): boolean =>
  (page.id === HISTORY || !isHistoryAlone(session.runs[run]))
  && (page.listed?.(session, run) ?? true)
  && !(page.live && report())
  && !missingParts(session.runs[run], page.id).length;

/** Changes when what stands beside a page has to be asked for again. */
const keyOf = (session: Session, run: number): string => `${run}/${session.runs[run]?.generation ?? 0}/${current()}`;

/** One box that finds operators, modules, tasks, findings and tables. */
function searchBox(run: number, traces: readonly TraceState[]): HTMLElement {
  const input = h("input", { type: "search", placeholder: t("search"), "aria-label": t("search"), autocomplete: "off" });
  const list = h("div", { class: "hits", "aria-label": t("search.found") });
  list.hidden = true;
  let asking = new AbortController();
  let timer = 0;
  const hide = (): void => {
    list.hidden = true;
  };
  const ask = async (): Promise<void> => {
    asking.abort();
    asking = new AbortController();
    const text = input.value.trim();
    if (!text) return hide();
    try {
      const { signal } = asking;
      const ranks = isMany(traces) ? await rankHits(run, text, signal, hide) : null;
      if (signal.aborted) return;
      if (ranks) {
        // what is known here is there before the server has looked through all names
        replace(list, ranks);
        list.hidden = false;
      }
      const found = await new RunApi(run, signal).get("search", { text });
      if (signal.aborted) return;
      const kinds = [...new Set(found.hits.map((one) => one.kind))];
      replace(
        list,
        ranks,
        kinds.length || ranks ? null : h("p", null, t("search.nothing")),
        kinds.map((kind) => {
          const hits = found.hits.filter((one) => one.kind === kind);
          return h(
            "section",
            null,
            h("h3", null, `${kindName(kind)} (${format.count(found.matching[kind] ?? hits.length)})`),
            h(
              "ul",
              null,
              hits
                .slice(0, 6)
                .map((one) =>
                  h(
                    "li",
                    null,
                    h("a", { href: target(run, one), onclick: hide }, format.shorten(one.title, 90)),
                    one.count
                      ? h("span", { class: "note" }, ` ${format.count(one.count)} × · ${format.time(one.total_ns)}`)
                      : null,
                  ),
                ),
            ),
          );
        }),
      );
      list.hidden = false;
    } catch {
      hide();
    }
  };
  input.addEventListener("input", () => {
    clearTimeout(timer);
    timer = window.setTimeout(() => void ask(), TYPING_MS);
  });
  const box = h("div", { class: "search", role: "search", "aria-label": t("search") }, input, list);
  box.addEventListener("keydown", (event) => {
    if (event.key === "Escape") hide();
    if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
    const links = [...list.querySelectorAll("a")];
    const place = links.indexOf(document.activeElement as HTMLAnchorElement) + (event.key === "ArrowDown" ? 1 : -1);
    (place < 0 ? input : links[Math.min(place, links.length - 1)])?.focus();
    event.preventDefault();
  });
  box.addEventListener("focusout", (event) => {
    if (!box.contains(event.relatedTarget as Node | null)) hide();
  });
  return box;
}

/** The ranks of a large job that a text means, by number, host or stage; nothing where it means none, or says nothing of them. */
async function rankHits(run: number, text: string, signal: AbortSignal, hide: () => void): Promise<HTMLElement | null> {
  if (!/\d/.test(text)) return null;
  const found = await new RunApi(run, signal).get("cluster/side-by-side").catch(() => null);
  const rows = found ? findRows(found, text) : [];
  if (!found || !rows.length) return null;
  return h(
    "section",
    null,
    h("h3", null, `${t("ranks")} (${format.count(rows.length)})`),
    h(
      "ul",
      null,
      rows
        .slice(0, RANKS_FOUND)
        .map((row) =>
          h(
            "li",
            null,
            h("a", { href: formatRoute(run, "steps", { rank: found.trace[row]! }), onclick: hide }, placeText(found, row)),
          ),
        ),
    ),
  );
}

const kindName = (kind: string): string =>
  kind === "finding" ? t("page.advice") : kind === "table" ? t("page.tables") : named("table", kind);

function target(run: number, hit: Hit): string {
  if (hit.kind === "finding") return formatRoute(run, "advice", { finding: hit.name });
  if (hit.kind === "table") return formatRoute(run, "tables", { table: hit.name });
  const where = JSON.stringify([{ column: "name", one_of: [hit.name] }]);
  if (hit.kind === "operators") return formatRoute(run, "operators", { "operators.where": where });
  if (hit.kind === "operators_by_module")
    return formatRoute(run, "operators", { by: "module", "operators_by_module.where": where });
  if (hit.kind === "kernels") return formatRoute(run, "kernels", { "kernels.where": where });
  return formatRoute(run, "tables", { table: hit.kind, [`${hit.kind}.where`]: where });
}
