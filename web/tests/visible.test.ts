import { expect, test } from "vitest";

import { visible, visibleIn } from "../src/words/visible";

test("characters that hide or turn text are shown by their number", () => {
  expect(visible("\u202egnp.exe\u2066")).toBe("⟨U+202E⟩gnp.exe⟨U+2066⟩");
  expect(visible("\u001b[31mred\u0000\u0007")).toBe("⟨U+001B⟩[31mred⟨U+0000⟩⟨U+0007⟩");
  expect(visible("a\tb\nc 名前 🎉 👩‍🚀 ١٢ שלום")).toBe("a\tb\nc 名前 🎉 👩‍🚀 ١٢ שלום");
});

test("no name of a chart is the prototype of objects", () => {
  expect(visibleIn([{ name: "__proto__", value: 1 }])[0]!.name).not.toBe("__proto__");
});

test("data of charts keeps everything but its texts", () => {
  const formatter = (): string => "\u202e";
  const option = {
    series: [
      {
        name: "\u202e",
        data: [
          [1, 2],
          [3, 4],
        ],
        formatter,
      },
    ],
    colour: null,
    on: true,
  };
  expect(visibleIn(option)).toEqual({
    series: [
      {
        name: "⟨U+202E⟩",
        data: [
          [1, 2],
          [3, 4],
        ],
        formatter,
      },
    ],
    colour: null,
    on: true,
  });
});
