/** Every page, in the order of the menu: adding one is a module and a line here. */

import type { Page } from "../ui/page";
import { advice } from "./advice/advice";
import { communication } from "./communication/communication";
import { compare } from "./compare/compare";
import { health } from "./health/health";
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

export const PAGES: readonly Page[] = [
  overview,
  advice,
  steps,
  timeline,
  operators,
  kernels,
  shapes,
  memory,
  pipeline,
  communication,
  ranks,
  marey,
  strategy,
  compare,
  health,
  live,
  tables,
  reportPage,
];
