/** Starts the pages: waits for the runs to be opened, and shows the page that the address names. */

import "./styles/style.css";
import "./styles/timeline.css";
import "./styles/views.css";
import "./styles/overview.css";

import { Refused, RunApi, Unreachable, session } from "./api/client";
import type { RunState, Session } from "./api/types";
import { Shell } from "./app/shell";
import { type Route, parseRoute } from "./browser/route";
import * as theme from "./browser/theme";
import { enter } from "./browser/token";
import { PAGES } from "./pages";
import { report } from "./report/embedded";
import { missing as notInReport } from "./report/questions";
import { h, replace } from "./ui/dom";
import { missingPage, missingParts } from "./ui/not_recorded";
import { failedBox, problemBox, progressBox } from "./ui/notices";
import { Context, HISTORY, isHistoryAlone, type Page } from "./ui/page";
import { t } from "./words/i18n";

/** a run that was read before is open within a second, ten million events within seconds; who waits longer waits for half a second more */
const POLL_MS = [100, 500] as const;
const OFTEN = 80;
/** a draft may be painted for so long before the page of an open run takes its place */
const DRAFT_MS = 500;

class App {
  private readonly shell: Shell;
  private session: Session | null = null;
  private leaving = new AbortController();
  private shown = "";
  /** the address that the shown page is of; the browser may already have another one, and be about to say so */
  private address = "";
  /** done when the draft that is shown is painted, or takes long */
  private drawing: Promise<void> = Promise.resolve();
  private timer = 0;
  private polls = 0;

  constructor(root: HTMLElement) {
    this.shell = new Shell(root, () => this.show(true));
    addEventListener("hashchange", () => this.show(true));
  }

  /** Ask how far the runs are, again until all are open. */
  async poll(): Promise<void> {
    clearTimeout(this.timer);
    try {
      const before = this.session;
      this.session = await session();
      const changed = JSON.stringify(before?.runs.map(outline)) !== JSON.stringify(this.session.runs.map(outline));
      if (changed) {
        // a draft that is about to be painted is not begun anew
        await this.drawing;
        this.show(false);
      } else this.tell();
      if (this.session.runs.some((one) => one.progress.state === "waiting" || one.progress.state === "opening")) this.again();
    } catch (error) {
      // a run that was being opened is asked for anew once the server is there again
      const isGone = error instanceof Unreachable;
      if (isGone && this.session?.runs[parseRoute(location.hash).run]?.generation === 0) this.session = null;
      // said once, however often it is asked
      const isSaid = isGone && this.shell.main.querySelector(".problem button") !== null;
      if (!this.session && !isSaid) replace(this.shell.main, problemBox(error));
      if (isGone || !(error instanceof Refused) || error.status >= 500) this.again();
    }
  }

  private again(): void {
    this.timer = window.setTimeout(() => void this.poll(), POLL_MS[this.polls++ < OFTEN ? 0 : 1]);
  }

  private tell(): void {
    const run = this.session?.runs[parseRoute(location.hash).run];
    const place = this.shell.main.querySelector(".progress");
    if (run && place) replace(place, progressBox(run));
  }

  /** Show the page of the address; `moved` puts the focus on it. */
  private show(moved: boolean): void {
    const found = this.session;
    if (!found) return;
    const route = parseRoute(location.hash);
    const run = found.runs[route.run];
    const wanted = isHistoryAlone(run) ? HISTORY : route.page;
    const page = PAGES.find((one) => one.id === wanted) ?? PAGES[0]!;
    this.leaving.abort();
    this.leaving = new AbortController();
    this.address = location.hash;
    this.shell.frame(found, run?.run ?? 0, page.id);
    document.title = `${t(page.title)} · ${run?.name ?? ""} · steplens`;
    if (!run) {
      replace(this.shell.main, problemBox(new Error(t("run.none", { run: route.run }))));
      return;
    }
    if (run.progress.state !== "ready" && run.generation === 0 && !(page.unopened && run.progress.state === "failed")) {
      if (run.progress.problem)
        replace(
          this.shell.main,
          failedBox(run, () => void this.reopen(route.run)),
        );
      else void this.wait(found, run, page);
      return;
    }
    const place = `${route.run}/${page.id}`;
    const scroll = place === this.shown ? scrollY : 0;
    this.shown = place;
    void this.fill(found, route, page.id, scroll, moved && scroll === 0);
  }

  /** Say how far the opening of a run is, and show what can be seen of it already. */
  private async wait(found: Session, run: RunState, page: Page): Promise<void> {
    const { signal } = this.leaving;
    const progress = h("div", { class: "progress", role: "status" }, progressBox(run));
    replace(this.shell.main, progress);
    if (!page.draft || !run.draft) return;
    const context = new Context(page.id, run, found, {}, new RunApi(run.run, signal), signal, () => undefined);
    let painted = (): void => undefined;
    this.drawing = new Promise((done) => {
      painted = done;
      setTimeout(done, DRAFT_MS);
      signal.addEventListener("abort", () => done());
    });
    // what cannot be drawn is shown once it is read
    const drawn = await page.draft(context, run.draft, painted).catch(() => null);
    if (!signal.aborted) replace(this.shell.main, progress, drawn);
  }

  private async fill(found: Session, route: Route, id: string, scroll: number, focus: boolean): Promise<void> {
    const page = PAGES.find((one) => one.id === id)!;
    const { signal } = this.leaving;
    const context = new Context(
      id,
      found.runs[route.run]!,
      found,
      route.params,
      new RunApi(route.run, signal),
      signal,
      (hash, kind) => {
        if (signal.aborted) return;
        if (kind === "visit") return void (location.hash = hash);
        // what a page remembers late must not bring back a page that is being left
        if (location.hash !== this.address) return;
        history.replaceState(null, "", hash);
        this.address = location.hash;
      },
    );
    const heading = h("h1", { tabindex: -1 }, t(page.title));
    const waiting = window.setTimeout(() => {
      if (!signal.aborted) replace(this.shell.main, heading, h("p", { class: "note", role: "status" }, t("loading")));
    }, 150);
    try {
      if (page.live && report()) throw notInReport(t(page.title));
      const missing = missingParts(context.run, id);
      const content = missing.length ? missingPage(context.run, missing) : await page.show(context);
      if (signal.aborted) return;
      replace(this.shell.main, heading, content);
    } catch (error) {
      if (signal.aborted) return;
      replace(this.shell.main, heading, problemBox(error));
    } finally {
      clearTimeout(waiting);
    }
    scrollTo(0, scroll);
    if (focus) heading.focus({ preventScroll: true });
    await Promise.allSettled(context.pending);
    if (signal.aborted) return;
    document.body.dataset["ready"] = location.hash || "#";
    this.shell.advise(found, route.run);
  }

  /** Try a run again that could not be opened: what was wrong with it may have been mended. */
  private async reopen(run: number): Promise<void> {
    try {
      await new RunApi(run, this.leaving.signal).reopen();
      this.refresh();
    } catch (error) {
      if (!this.leaving.signal.aborted) replace(this.shell.main, problemBox(error));
    }
  }

  /** Show the page once more, which the server did not answer. */
  repeat = (): void => {
    if (this.session) this.show(false);
    else void this.poll();
  };

  /** Poll once more, because a run is being read again. */
  refresh = (): void => void this.poll();
}

/** a draft that is no longer of use is no reason to show a page again */
const outline = (run: RunState): unknown => [
  run.generation,
  run.versions,
  run.progress.state === "failed",
  run.progress.problem,
  run.generation === 0 && run.draft,
];

enter();
theme.start();
const app = new App(document.getElementById("app")!);
document.addEventListener("steplens-reopen", app.refresh);
document.addEventListener("steplens-again", app.repeat);
void app.poll();
