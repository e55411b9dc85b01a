/** Every page, in the groups and the order of the menu: adding one is a module and a line here. */

import type { Page } from "../ui/page";
import type { Key } from "../words/i18n";
import { advice } from "./advice/advice";
import { communication } from "./communication/communication";
import { compare } from "./compare/compare";
import { health } from "./health/health";
import { history } from "./history/history";
import { kernels } from "./kernels/kernels";
import { live } from "./live/live";
import { marey } from "./marey/marey";
import { memory } from "./memory/memory";
import { operators } from "./operators/operators";
import { overview } from "./overview/overview";
import { pipeline } from "./pipeline/pipeline";
import { ranks } from "./ranks/ranks";
import { reportPage } from "./report/report";
import { shapes } from "./shapes/shapes";
import { steps } from "./steps/steps";
import { strategy } from "./strategy/strategy";
import { tables } from "./tables/tables";
import { timeline } from "./timeline/timeline";

/** Some pages under one heading of the menu; a page without a heading stands by itself. */
export interface Group {
  /** its name in what the browser remembers */
  id: string;
  title: Key | null;
  pages: readonly Page[];
  /** whether it is open before anybody opened or closed it */
  open: boolean;
}

const single = (page: Page): Group => ({ id: page.id, title: null, pages: [page], open: true });

export const GROUPS: readonly Group[] = [
  single(overview),
  single(advice),
  { id: "time", title: "menu.time", pages: [steps, operators, kernels, shapes], open: true },
  single(timeline),
  single(memory),
  single(pipeline),
  { id: "ranks", title: "menu.ranks", pages: [communication, ranks, marey, strategy], open: true },
  single(compare),
  single(history),
  single(live),
  { id: "recording", title: "menu.recording", pages: [health, tables, reportPage], open: true },
];

export const PAGES: readonly Page[] = GROUPS.flatMap((group) => group.pages);
