"""The verdict on a run and which steps figures are of, in languages other than English, which analyses speak themselves."""

from __future__ import annotations

from steplens.advice.texts.text import CHINESE

#: language -> kind of verdict -> what is said of it
VERDICTS: dict[str, dict[str, str]] = {
    CHINESE: {
        "compute": "计算受限：{device} 在步内 {share} 的时间进行计算。",
        "communication": "通信受限：步内 {share} 的时间为未掩盖的通信。",
        "copy": "拷贝受限：步内 {share} 的时间 {device} 只在拷贝。",
        "input": "输入受限：步内 {share} 的时间在等待数据加载。",
        "host": "主机受限：步内 {share} 的时间在等待主机。",
        "synchronizing": "主机受限：步内 {share} 的时间因同步而损失。",
        "rank": "等待 rank {rank}：它使其他 rank 延迟一步的 {share}。",
        "nothing": "无明显瓶颈：没有原因占到步时间的 15 %。",
        "unknown": "无结论：未记录到含算子或设备任务的步。",
        "guess": " 仅为推测：数据存疑。",
        "few": " 可能：步数较少。",
        "likely": " 可能：其他原因的占比相近。",
    }
}

#: language -> what is said of the steps
STEPS: dict[str, dict[str, str]] = {
    CHINESE: {
        "several": "{count} 步的中位数",
        "none": "没有步骤",
        "left_out": "；未计入：{steps}",
        "few": "；步数较少",
        "warm-up": "预热",
        "cut": "记录不完整",
    }
}
