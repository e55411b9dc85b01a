/** Why a question has no answer. */

import { t } from "../words/i18n";
import type { Problem } from "./types";

export class Refused extends Error {
  constructor(
    readonly status: number,
    readonly problem: Problem,
  ) {
    super(problem.problem);
  }
}

/** The server does not answer: it ended, or the connection to it is cut. Nothing that it says about this is a status of HTTP. */
export class Unreachable extends Refused {
  /** `address` is where it was, `paths` are the runs that it showed, as far as it said. */
  constructor(address: string, paths: readonly string[]) {
    super(0, {
      problem: t("server.gone", { address }),
      where: "",
      remedy: t("server.gone.remedy", { command: viewCommand(paths) }),
    });
  }
}

/** more paths than these are a command that nobody reads */
const MOST_PATHS = 3;

/** The command that shows some runs, for a shell. */
export function viewCommand(paths: readonly string[]): string {
  const shown = paths.length && paths.length <= MOST_PATHS ? paths.map(quoted).join(" ") : "PATH";
  return `steplens view ${shown}`;
}

const quoted = (path: string): string => (/^[\w@%+=:,./~-]+$/.test(path) ? path : `'${path.replaceAll("'", "'\\''")}'`);
