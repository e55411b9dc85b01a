/** What the address says: the run, the page, and everything that a link to it should keep. */

export interface Route {
  run: number;
  page: string;
  /** filters, sort orders, step, rank, window ... of the page */
  params: Readonly<Record<string, string>>;
}

export const HOME = "overview";

/** Earlier names of tables, which an address that somebody kept may hold, and what they are called now. */
const RENAMED = new Map([
  ["communication_overlap", "overlap"],
  ["device_idle", "stream_idle"],
  ["idle_causes", "idle"],
  ["launch_queues", "queues"],
  ["launch_statistics", "launches"],
  ["modules", "operators_by_module"],
  ["runtime_calls", "api_calls"],
]);

/** A route of a hash such as `#/0/operators?rank=1`; whatever is missing or wrong takes its default. */
export function parseRoute(hash: string): Route {
  const text = hash.replace(/^#?\/?/, "");
  const cut = text.indexOf("?");
  const [run = "", page = ""] = (cut < 0 ? text : text.slice(0, cut)).split("/");
  const params: Record<string, string> = {};
  for (const [name, value] of new URLSearchParams(cut < 0 ? "" : text.slice(cut + 1))) {
    const [table = "", ...rest] = name.split(".");
    if (rest.length) params[[RENAMED.get(table) ?? table, ...rest].join(".")] = value;
    else params[name] = name === "table" || name === "more" ? (RENAMED.get(value) ?? value) : value;
  }
  return { run: /^\d{1,9}$/.test(run) ? Number(run) : 0, page: /^[a-z]{1,32}$/.test(page) ? page : HOME, params };
}

/** The hash of a route; parameters without a value are left out. */
export function formatRoute(
  run: number,
  page: string,
  params: Readonly<Record<string, string | number | null | undefined>> = {},
): string {
  const query = new URLSearchParams();
  for (const name of Object.keys(params).sort()) {
    const value = params[name];
    if (value !== null && value !== undefined && value !== "") query.set(name, String(value));
  }
  const text = query.toString();
  return `#/${run}/${page}${text ? `?${text}` : ""}`;
}

/** A parameter that is a number not below 0, or null. */
export function numberOf(params: Readonly<Record<string, string>>, name: string): number | null {
  const text = params[name];
  return text !== undefined && /^\d{1,17}$/.test(text) ? Number(text) : null;
}
