/** Every page, in the order of the menu: adding one is a module and a line here. */

import type { Page } from "../page";
import { advice } from "./advice";
import { communication } from "./communication";
import { compare } from "./compare";
import { health } from "./health";
import { kernels } from "./kernels";
import { live } from "./live";
import { marey } from "./marey";
import { memory } from "./memory";
import { operators } from "./operators";
import { overview } from "./overview";
import { pipeline } from "./pipeline";
import { ranks } from "./ranks";
import { reportPage } from "./report";
import { shapes } from "./shapes";
import { steps } from "./steps";
import { strategy } from "./strategy";
import { tables } from "./tables";
import { timeline } from "./timeline";

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
