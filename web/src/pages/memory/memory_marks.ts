/** Memory in figures, and what is marked on its curve: capacity, what stays, and where the passes of a step begin and end. */

import type { DeviceMemory, MemoryOverview, StepPoints } from "../../api/types";
import type { Palette } from "../../browser/theme";
import { h, type Child } from "../../ui/dom";
import type { Context } from "../../ui/page";
import { deviceOf, figure, figures } from "../../ui/ui";
import * as format from "../../words/format";
import { t } from "../../words/i18n";

export interface MemoryMarks {
  capacity_bytes: number | null;
  static_bytes: number | null;
  step: StepPoints | null;
}

/** One row of figures per device. */
export function deviceFigures(context: Context, trace: number, found: MemoryOverview): Child {
  const count = (value: number | null): Child => (value === null ? format.NOTHING : format.count(value));
  return found.devices
    .slice(0, 8)
    .map((one) =>
      h(
        "section",
        { "aria-label": deviceOf({ ...one }) },
        found.devices.length > 1 ? h("h3", null, deviceOf({ ...one })) : null,
        figures(
          figure(
            t("memory.capacity"),
            format.value(one.capacity_bytes, "bytes"),
            one.capacity_bytes && one.peak_bytes !== null
              ? t("memory.of_capacity", { share: format.share(one.peak_bytes / one.capacity_bytes) })
              : null,
          ),
          figure(t("memory.static"), format.value(one.static_bytes, "bytes"), t("memory.static.what")),
          figure(
            t("memory.peak"),
            format.value(one.peak_bytes, "bytes"),
            one.peak_ns === null
              ? null
              : one.peak_step === null
                ? format.moment(one.peak_ns, 1e5)
                : `${t("step")} ${one.peak_step}`,
            one.peak_ns === null ? undefined : context.to("memory", { ...context.params, rank: trace || null, at: one.peak_ns }),
          ),
          figure(t("memory.allocations"), count(one.allocations)),
          figure(t("memory.releases"), count(one.releases)),
        ),
      ),
    );
}

/** What to mark on the curve of a place such as "CUDA 0": of the step at a moment, or of the one with the peak. */
export function memoryMarks(found: MemoryOverview, place: string, at: number | null): MemoryMarks {
  const device = deviceAt(found, place);
  const inside = at === null ? undefined : found.steps.find((one) => one.start_ns <= at && at < one.end_ns);
  const step = inside ?? found.steps.find((one) => one.step === device?.peak_step) ?? null;
  return { capacity_bytes: device?.capacity_bytes ?? null, static_bytes: device?.static_bytes ?? null, step };
}

/** The device of a place such as "NPU 0 PTA". */
export const deviceAt = (found: MemoryOverview, place: string): DeviceMemory | null =>
  found.devices.find((one) => isDevice(one, place)) ?? null;

function isDevice(one: DeviceMemory, place: string): boolean {
  const words = place.split(" ");
  return words[0] === one.device_type && (one.device === null || words[1] === undefined || words[1] === String(one.device));
}

/** The marks as lines of a chart. */
export function markLines(marks: MemoryMarks, colours: Palette): object {
  const { capacity_bytes, static_bytes, step } = marks;
  const line = (at: object, name: string, position: string): object => ({
    ...at,
    label: { formatter: name, color: colours.text, position, fontSize: 11 },
  });
  return {
    symbol: "none",
    silent: true,
    lineStyle: { type: "dashed", color: colours.faint },
    data: [
      ...(capacity_bytes === null ? [] : [line({ yAxis: capacity_bytes }, t("memory.capacity"), "insideEndTop")]),
      ...(static_bytes ? [line({ yAxis: static_bytes }, t("memory.static"), "insideEndTop")] : []),
      ...(step?.forward_ns == null
        ? []
        : [line({ xAxis: step.forward_ns }, t("memory.forward", { step: step.step }), "insideEndBottom")]),
      ...(step?.backward_ns == null
        ? []
        : [line({ xAxis: step.backward_ns }, t("memory.backward", { step: step.step }), "insideEndTop")]),
    ],
  };
}
