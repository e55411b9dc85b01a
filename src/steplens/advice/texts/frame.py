"""The sentences around findings."""

from __future__ import annotations

from steplens.advice.texts.text import CHINESE, ENGLISH

#: the frame around findings
FRAME: dict[str, dict[str, str]] = {
    "saves": {
        ENGLISH: "saves about {likely} of a step ({share}; between {low} and {high})",
        CHINESE: "每步约可节省 {likely}（{share}；{low} 至 {high}）",
    },
    "several": {ENGLISH: "{count} findings", CHINESE: "{count} 条建议"},
    "one": {ENGLISH: "1 finding", CHINESE: "1 条建议"},
    "nothing": {ENGLISH: "Nothing to change was found", CHINESE: "没有发现需要修改之处"},
    "step": {ENGLISH: "; a step takes {step}", CHINESE: "；每步 {step}"},
    "no_steps": {
        ENGLISH: "; without complete steps most causes cannot be judged",
        CHINESE: "；没有完整的步骤，大多数原因无法判断",
    },
    "confidence": {ENGLISH: "confidence {percent}", CHINESE: "置信度 {percent}"},
    "evidence": {ENGLISH: "evidence", CHINESE: "证据"},
    "per_step": {ENGLISH: "a step", CHINESE: "每步"},
    "steps": {ENGLISH: "steps", CHINESE: "步骤"},
    "see": {ENGLISH: "see {where}", CHINESE: "详见 {where}"},
    "change": {ENGLISH: "change", CHINESE: "修改"},
    "not_judged": {
        ENGLISH: "not judged: {rule}, because {conclusion} is unsafe ({reason})",
        CHINESE: "未判断：{rule}，因为“{conclusion}”不可靠（{reason}）",
    },
    "high": {ENGLISH: "high", CHINESE: "高"},
    "medium": {ENGLISH: "medium", CHINESE: "中"},
    "low": {ENGLISH: "low", CHINESE: "低"},
    "cured": {ENGLISH: "cured", CHINESE: "已解决"},
    "remaining": {ENGLISH: "still there", CHINESE: "仍然存在"},
    "new": {ENGLISH: "new", CHINESE: "新出现"},
    "since": {
        ENGLISH: "a step took {before}, now {after}: {saved} less ({promised} were expected of what was cured)",
        CHINESE: "每步由 {before} 变为 {after}：减少 {saved}（已解决的建议预计可减少 {promised}）",
    },
    "since_longer": {
        ENGLISH: "a step took {before}, now {after}: {added} more ({promised} less were expected of what was cured)",
        CHINESE: "每步由 {before} 变为 {after}：增加 {added}（已解决的建议预计可减少 {promised}）",
    },
    "since_unknown": {
        ENGLISH: "one of the two runs has no complete steps: what became of its steps and causes cannot be told",
        CHINESE: "两次运行中有一次没有完整的步骤，无法判断步骤和原因的变化",
    },
}
