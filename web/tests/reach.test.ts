import { afterEach, describe, expect, test, vi } from "vitest";

import { Refused, RunApi, Unreachable, session } from "../src/api/client";
import { viewCommand } from "../src/api/refused";
import { setLanguage } from "../src/words/i18n";

const answer = (body: unknown, status = 200): Response => new Response(JSON.stringify(body), { status });
const failure = async (asked: Promise<unknown>): Promise<unknown> => asked.then(() => null).catch((error: unknown) => error);
const ask = (): Promise<unknown> => new RunApi(0, new AbortController().signal).get("health");

afterEach(() => {
  setLanguage("en");
  vi.unstubAllGlobals();
});

describe("a server that is gone", () => {
  test("is told from one that refuses, with the command that starts it again", async () => {
    vi.stubGlobal("location", { origin: "http://127.0.0.1:8321" });
    vi.stubGlobal("fetch", () => Promise.resolve(answer({ runs: [{ path: "/data/a run" }] })));
    await session();
    vi.stubGlobal("fetch", () => Promise.reject(new TypeError("Failed to fetch")));
    const gone = (await failure(ask())) as Unreachable;
    expect(gone).toBeInstanceOf(Unreachable);
    expect(gone.message).toBe("The server of steplens view at http://127.0.0.1:8321 does not answer any more.");
    expect(gone.problem.remedy).toContain("Start it again with `steplens view '/data/a run'`");
    setLanguage("zh");
    const said = (await failure(ask())) as Unreachable;
    expect(said.message).toContain("http://127.0.0.1:8321");
    expect(said.message).not.toBe(gone.message);
    vi.stubGlobal("fetch", () => Promise.resolve(answer({ problem: "no such run", where: "", remedy: "" }, 404)));
    const refused = await failure(ask());
    expect(refused).toBeInstanceOf(Refused);
    expect(refused).not.toBeInstanceOf(Unreachable);
  });

  test("is told where its answer breaks off, and not where the page is left", async () => {
    vi.stubGlobal("fetch", () => Promise.resolve({ ok: true, json: () => Promise.reject(new TypeError("network error")) }));
    expect(await failure(ask())).toBeInstanceOf(Unreachable);
    const left = new DOMException("The user aborted a request.", "AbortError");
    vi.stubGlobal("fetch", () => Promise.reject(left));
    expect(await failure(ask())).toBe(left);
  });

  test("is started again with paths as a shell takes them", () => {
    expect(viewCommand(["run", "/data/b"])).toBe("steplens view run /data/b");
    expect(viewCommand(["it's"])).toBe("steplens view 'it'\\''s'");
    expect(viewCommand([])).toBe("steplens view PATH");
    expect(viewCommand(["a", "b", "c", "d"])).toBe("steplens view PATH");
  });
});
