"""Causes in words."""

from __future__ import annotations

from steplens.analysis.device import idle
from steplens.analysis.steps.times import DEVICE_PARTS
from steplens.common.display import mean_count
from steplens.comparison.causes.cause import (
    ADDED,
    CALLS,
    COMMUNICATION,
    GAPS,
    IDLE,
    LOADER,
    OPTIMIZER,
    RECOMPUTED,
    REMOVED,
    REPLACED,
    SHAPES,
    SPEED,
    SYNCHRONISATION,
    TYPES,
    UNKNOWN,
    Cause,
)

#: where, by phase
_WHERE = {
    "en": {
        "forward": "in forward", "backward": "in backward", "optimizer": "in the optimizer", "between": "between the phases",
        "data_wait": "while waiting for data", "data": "while waiting for data", "device_wait": "while waiting for the device",
        "waiting for the device": "while waiting for the device", "python": "between the phases", "end": "at the end of the step",
    },
    "zh": {
        "forward": "前向", "backward": "反向", "optimizer": "优化器", "between": "各阶段之间", "data_wait": "等待数据时",
        "data": "等待数据时", "device_wait": "等待设备时", "waiting for the device": "等待设备时", "python": "各阶段之间",
        "end": "步末尾",
    },
}  # fmt: skip
_TEXTS = {
    "en": {
        SPEED: "{name}{where} takes {change} {work}",
        CALLS: "{name}{where} is called {calls}",
        SHAPES: "{name}{where} works on {after} instead of {before}",
        TYPES: "{name}{where} works on {after} instead of {before}",
        REPLACED: "{after}{where} instead of {before}",
        ADDED: "{name}{where}, which was not there before",
        REMOVED: "{name}{where}, which is not there any more",
        RECOMPUTED: "backward computes {name} of forward again",
        "not recomputed": "backward does not compute {name} of forward again any more",
        OPTIMIZER: "the optimizer is {after} instead of {before}",
        LOADER: "waiting for the data loader",
        SYNCHRONISATION: "waiting of the host for the device{colon_name}{where}",
        COMMUNICATION: "communication that nothing hides: {name}",
        GAPS: "time without an operator{before_name}{where}",
        IDLE: "idle time of the device{before_name}{where}",
        "longer": "{percent} % longer", "times": "{times} times as long", "shorter": "{percent} % less time",
        "same": "for the same calls",
        "unknown": "in as many calls (shapes of inputs were not recorded)",
        "counts": "{after} times instead of {before}", "before": " before {name}", "and": " and ", "several": "{count} operators",
        "of change": "{share} % of the change", "modules": " ({modules})", "more modules": "{first} and {count} more modules",
    },
    "zh": {
        SPEED: "{of_where} {name} {work}{change}",
        CALLS: "{of_where} {name} 调用次数：{calls}",
        SHAPES: "{of_where} {name} 处理的形状为 {after}，之前为 {before}",
        TYPES: "{of_where} {name} 处理的数据类型为 {after}，之前为 {before}",
        REPLACED: "{where}用 {after} 代替了 {before}",
        ADDED: "{where}新增了 {name}",
        REMOVED: "{where}不再有 {name}",
        RECOMPUTED: "反向中重新计算前向的 {name}", "not recomputed": "反向中不再重新计算前向的 {name}",
        OPTIMIZER: "优化器为 {after}，之前为 {before}",
        LOADER: "等待数据加载器",
        SYNCHRONISATION: "主机等待设备{colon_name}",
        COMMUNICATION: "未被掩盖的通信：{name}",
        GAPS: "没有算子运行的时间：{where}{before_name}",
        IDLE: "设备空闲时间：{where}{before_name}",
        "longer": "耗时增加 {percent} %", "times": "耗时为之前的 {times} 倍",
        "shorter": "耗时减少 {percent} %", "same": "同样的调用",
        "unknown": "次数相同的调用（未记录输入形状）",
        "counts": "{after} 次，之前 {before} 次", "before": " {name} 之前", "and": "、", "several": "{count} 个算子",
        "of change": "占变化的 {share} %", "modules": "（{modules}）", "more modules": "{first} 及另外 {count} 个模块",
    },
}  # fmt: skip
#: the device idles, by why it does
_IDLE_TEXTS = {
    "en": {
        idle.GARBAGE_COLLECTION: "idle time of the device while the host collects garbage{before_name}{where}",
        idle.ALLOCATION: "idle time of the device while the host allocates its memory{before_name}{where}",
        idle.CALLS: "idle time of the device while the host runs {name}{where}",
        idle.PYTHON: "idle time of the device while Python runs{before_name}{where}",
        idle.NOT_RECORDED: "idle time of the device for a late host{before_name}{where}",
        idle.LAUNCH: "idle time of the device while the launch is underway{before_name}{where}",
        idle.BETWEEN_KERNELS: "idle time of the device between kernels{before_name}{where}",
        idle.DEPENDENCY: "idle time of the device for another stream, an event or another rank{before_name}{where}",
    },
    "zh": {
        idle.GARBAGE_COLLECTION: "主机回收垃圾时设备空闲：{where}{before_name}",
        idle.ALLOCATION: "主机为设备分配内存时设备空闲：{where}{before_name}",
        idle.CALLS: "主机运行{of_where} {name} 时设备空闲",
        idle.PYTHON: "Python 运行时设备空闲：{where}{before_name}",
        idle.NOT_RECORDED: "主机来迟时设备空闲：{where}{before_name}",
        idle.LAUNCH: "任务下发途中设备空闲：{where}{before_name}",
        idle.BETWEEN_KERNELS: "相邻核函数之间设备空闲：{where}{before_name}",
        idle.DEPENDENCY: "设备等待其他流、事件或其他 rank 而空闲：{where}{before_name}",
    },
}
_SHOWN_NAMES = 3
#: from here on it is told how many times as long something takes, not by how many percent longer
_TIMES = 3.0


def state_cause(cause: Cause, language: str = "en") -> str:
    """What a cause is, in a sentence without its time.

    Args:
        cause: to be said.
        language: "en" or "zh".
    """
    texts, where = _TEXTS[language], _WHERE[language]
    phases = [where.get(phase, phase) for phase in cause.phase.split(" and ") if phase]
    place = texts["and"].join(dict.fromkeys(phases))
    name = ", ".join(cause.names[:_SHOWN_NAMES]) + (" ..." if len(cause.names) > _SHOWN_NAMES else "")
    change = _change_text(cause, texts)
    counts = texts["counts"].format(before=mean_count(cause.before_calls), after=mean_count(cause.after_calls))
    kind = "not recomputed" if cause.kind == RECOMPUTED and cause.before_text else cause.kind
    is_english = language == "en"
    is_late = cause.kind == GAPS and cause.part == DEVICE_PARTS[3]
    text = _IDLE_TEXTS[language].get(cause.idle_cause or (idle.NOT_RECORDED if is_late else ""), texts[kind])
    colon_name = f": {name}" if is_english else f"：{place} {name}"
    sentence_text = text.format(
        name=name, where=f" {place}" if place and is_english else place, change=change, calls=counts,
        before=cause.before_text, after=cause.after_text, work=texts["unknown" if cause.work == UNKNOWN else "same"],
        before_name=texts["before"].format(name=name) if name else "", of_where=f"{place}的" if place else "",
        colon_name=colon_name if name else "",
    )  # fmt: skip
    return sentence_text.strip() + (texts["modules"].format(modules=_modules_text(cause, texts)) if cause.modules else "")


def _change_text(cause: Cause, texts: dict[str, str]) -> str:
    if not cause.before_ns:
        return texts["longer"].format(percent="")
    factor = cause.after_ns / cause.before_ns
    way = "shorter" if factor < 1.0 else "times" if factor >= _TIMES else "longer"
    return texts[way].format(percent=f"{100 * abs(factor - 1.0):.0f}", times=f"{factor:.2g}" if factor < 100 else f"{factor:.0f}")


def _modules_text(cause: Cause, texts: dict[str, str]) -> str:
    first, *more = cause.modules
    return texts["more modules"].format(first=first, count=len(more)) if more else first


def explain_cause(cause: Cause, language: str = "en") -> str:
    """The same with its time.

    Args:
        cause: to be said.
        language: "en" or "zh".
    """
    colon = "：" if language == "zh" else ": "
    amount = f"{cause.difference_ns / 1e6:+.3g} ms"
    share = "" if cause.share is None else ", " + _TEXTS[language]["of change"].format(share=f"{100 * cause.share:.0f}")
    return f"{state_cause(cause, language)}{colon}{amount}{share}"
