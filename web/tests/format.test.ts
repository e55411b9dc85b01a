import { describe, expect, test } from "vitest";

import type { Column } from "../src/api/types";
import { condition } from "../src/tables/table_filter";
import { cellText } from "../src/tables/table_row";
import { seriesName } from "../src/timeline/labels";
import { numberRanges } from "../src/ui/ui";
import * as format from "../src/words/format";
import { NOTHING } from "../src/words/format";
import { kernelLabel } from "../src/words/kernel_names";

const plain = (text: string): string => text.replaceAll(" ", " ");

describe("figures", () => {
  test.each([
    [0, "0 ns"],
    [1, "1 ns"],
    [999, "999 ns"],
    [1000, "1 µs"],
    [1234, "1.234 µs"],
    [999_960, "1 ms"],
    [1_234_567, "1.235 ms"],
    [66_390_000, "66.39 ms"],
    [1e9, "1 s"],
    [3.6e12, "3,600 s"],
    [-2_500_000, "-2.5 ms"],
  ])("%d ns is %s", (ns, text) => expect(plain(format.time(ns))).toBe(text));

  test.each([
    [57_956_500, 115_913_000, 115_913_000, ["57 ms", "115 ms", "115 ms"]],
    [0, 54_600_000, 115_913_000, ["0", "55 ms", "115 ms"]],
    [999_600, 999_600, 1_150_000, ["990 µs", "1 ms", "1.15 ms"]],
    [36e6, 36e6, 36e6, ["36 ms", "36 ms", "36 ms"]],
  ])("the ends of %d, %d, %d are no more than they are", (low_ns, likely_ns, high_ns, shown) =>
    expect(format.range({ low_ns, likely_ns, high_ns }).map(plain)).toEqual(shown),
  );

  test("shares of the ends of a range", () => {
    expect([format.mostShare(0.1159), format.estimatedShare(0.1159), format.estimatedShare(0.1159, 0.1159)].map(plain)).toEqual([
      "11.5 %",
      "12 %",
      "11.5 %",
    ]);
  });

  test.each([
    [0, "0 B"],
    [1023, "1,023 B"],
    [1024, "1 KiB"],
    [2 ** 20 * 8.9, "8.9 MiB"],
    [2 ** 30, "1 GiB"],
  ])("%d bytes are %s", (value, text) => expect(plain(format.bytes(value))).toBe(text));

  test("units of the server", () => {
    expect(plain(format.value(1.5, "ms"))).toBe("1.5 ms");
    expect(plain(format.value(12.345, "percent"))).toBe("12.3 %");
    expect(plain(format.value(0.5, "ratio"))).toBe("50 %");
    expect(plain(format.value(250, "factor"))).toBe("2.5 ×");
    expect(format.value(null, "ns")).toBe(format.NOTHING);
    expect(format.value("1795302477657874703", "")).toBe("1795302477657874703");
    expect(plain(format.value(3, "GB/s"))).toBe("3 GB/s");
    expect(plain(format.value(2 ** 21, "B/s"))).toBe("2 MiB/s");
    expect(plain(format.value(1.5e12, "FLOP/s"))).toBe("1.5 TFLOP/s");
    expect(format.value([1, 2.5], "")).toBe("1, 2.5");
  });

  test("a moment has the digits that its resolution needs", () => {
    expect(plain(format.moment(123_456_789, 1e6))).toBe("123 ms");
    expect(plain(format.moment(123_456_789, 1e3))).toBe("123.457 ms");
  });

  test("shortened text fits", () => {
    expect(format.shorten("abcdef", 4)).toBe("abc…");
    expect(format.shorten("abc", 3)).toBe("abc");
  });
});

describe("typed values", () => {
  test.each([
    ["1.5 ms", "ns", 1.5e6],
    ["200us", "ns", 2e5],
    ["200 µs", "ns", 2e5],
    ["3", "ns", 3],
    ["2 MiB", "bytes", 2 ** 21],
    ["1.5s", "ms", 1500],
    ["5 %", "ratio", 0.05],
    ["2.5 ×", "factor", 250],
    ["5%", "percent", 5],
    ["-3", "", -3],
    ["120 ms", "moment", 1.2e8],
  ])("%s of %s", (text, unit, value) => expect(format.typed(text, unit)).toBeCloseTo(value, 9));

  test.each([
    ["ms", "ns"],
    ["1 parsec", "ns"],
    ["5 %", "ns"],
    ["1,5", "ns"],
    ["1 ms", "bytes_"],
    ["", ""],
  ])("%j is no %s", (text, unit) => expect(format.typed(text, unit)).toBeNaN());

  test("become conditions", () => {
    expect(condition({ name: "self_ns", type: "integer", unit: "ns" }, "at_least", "1 ms")).toEqual({
      column: "self_ns",
      at_least: 1e6,
    });
    expect(condition({ name: "self_ns", type: "integer", unit: "ns" }, "at_most", "x")).toBeNull();
    expect(condition({ name: "name", type: "text", unit: "" }, "contains", " conv ")).toEqual({
      column: "name",
      contains: "conv",
    });
  });
});

test("a table calls the CPU, which has no number among the devices, by its name", () => {
  const column = (name: string): Column => ({ name, type: "integer", unit: "" });
  expect([-1, 0, 3, null].map((one) => cellText(one, column("device")))).toEqual(["CPU", "0", "3", NOTHING]);
  expect(cellText(-1, column("parent"))).toBe("-1");
});

test("a curve of the CPU's memory has no number either, and others keep their names", () => {
  expect(seriesName("memory allocated, CPU -1 PTA")).toBe("memory allocated, CPU PTA");
  expect(seriesName("memory reserved, NPU 0")).toBe("memory reserved, NPU 0");
  expect(seriesName("HBM: Read -1, device 1")).toBe("HBM: Read -1, device 1");
});

describe("names of kernels", () => {
  const wrapped = (given: string): string =>
    `void at::native::vectorized_elementwise_kernel<4, ${given}, at::detail::Array<char*, 3> >(int, ${given})`;

  test("begin with what tells them apart", () => {
    expect(kernelLabel(wrapped("at::native::CUDAFunctor_add<float>"))).toMatch(
      /^CUDAFunctor_add<float> · vectorized_elementwise_kernel</,
    );
    const threshold =
      "at::native::BinaryFunctor<float, float, float, at::native::(anonymous namespace)::threshold_kernel_impl<float>(at::TensorIteratorBase&, float, float)::{lambda(float, float)#1}>";
    expect(kernelLabel(wrapped(threshold))).toMatch(/^threshold_kernel_impl<float> · /);
    expect(kernelLabel("void cudnn::bn_bw_1C11_kernel_new<float, float, float2, 128, true, 1>(float, float)")).toBe(
      "bn_bw_1C11_kernel_new<float, float, float2, 128, true, 1>",
    );
    expect(kernelLabel("volta_sgemm_64x64_nt")).toBe("volta_sgemm_64x64_nt");
    expect(kernelLabel("Default/network/MatMul-op1")).toBe("MatMul-op1");
  });
});

test("numbers are told as ranges", () => {
  expect(numberRanges([5, 3, 4, 1, 9])).toBe("1, 3–5, 9");
  expect(numberRanges([])).toBe("");
});
