/** Why a question has no answer. */

import type { Problem } from "./types";

export class Refused extends Error {
  constructor(
    readonly status: number,
    readonly problem: Problem,
  ) {
    super(problem.problem);
  }
}
