"""``action.yml``: its steps, run as GitHub's runner runs those of a composite action, and the workflow that shows its use."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from ..command_line import command_environment
from .test_compare import program

ROOT = Path(__file__).parents[2]
ACTION = ROOT / "action.yml"
WORKFLOWS = ROOT / "examples" / "github"
#: what the action may ask for; all of it is looked up, none of it computed
EXPRESSION = re.compile(r"\$\{\{ *([\w.-]+) *\}\}")
#: commands that a line of output can be to a runner (those that would do harm)
NAMES = "add-mask|add-path|debug|error|group|notice|save-state|set-env|set-output|warning"
COMMAND = re.compile(rf"^::({NAMES})\b.*?::|##\[({NAMES})\b")
#: a name that ends the text of a step's output, and gives the runner commands
HOSTILE = "::set-output name=verdict::alike"


def read_yaml(path: Path) -> dict[Any, Any]:
    return pytest.importorskip("yaml").safe_load(path.read_text("utf-8"))


@dataclass
class Runner:
    """Runs the action in a folder of its own.

    Attributes:
        folder: of the job; ``workspace`` and ``temp`` lie in it.
        event: the event that started the job.
    """

    folder: Path
    event: dict[str, Any] = field(default_factory=dict)
    path: str = os.environ["PATH"]

    def __post_init__(self) -> None:
        self.workspace, self.temp = self.folder / "workspace", self.folder / "temp"
        for folder in (self.workspace, self.temp):
            folder.mkdir()

    def run(self, **inputs: str) -> Finished:
        action = read_yaml(ACTION)
        given = {name.replace("_", "-"): value for name, value in inputs.items()}
        assert given.keys() <= action["inputs"].keys()
        context: dict[str, Any] = {
            "inputs": {name: given.get(name, described.get("default", "")) for name, described in action["inputs"].items()},
            "github": {"event": self.event},
            "steps": {},
        }
        finished = Finished()
        for step in action["runs"]["steps"]:
            code, outputs = self._run_step(step, context, finished)
            context["steps"][step.get("id", step["name"])] = {"outputs": outputs}
            if code:
                # what is behind a step that failed is left out, and the outputs are known all the same
                finished.code = code
                break
        finished.outputs = {name: evaluate(output["value"], context) for name, output in action["outputs"].items()}
        return finished

    def _run_step(self, step: dict[str, Any], context: dict[str, Any], finished: Finished) -> tuple[int, dict[str, str]]:
        files = {name: self.folder / name for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY", "GITHUB_ENV", "GITHUB_PATH")}
        for file in files.values():
            file.write_bytes(b"")
        script = self.folder / "script.sh"
        script.write_text(step["run"], "utf-8")
        environment = {
            **command_environment(),
            **{name: str(file) for name, file in files.items()},
            "GITHUB_ACTION_PATH": str(ROOT),
            "GITHUB_REPOSITORY": "owner/training",
            "GITHUB_SERVER_URL": "https://github.com",
            "GITHUB_WORKSPACE": str(self.workspace),
            "RUNNER_TEMP": str(self.temp),
            "PATH": self.path,
            **{name: evaluate(value, context) for name, value in step.get("env", {}).items()},
        }
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)],
            cwd=self.workspace,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        finished.log += done.stdout + done.stderr
        finished.commands += read_commands(done.stdout + done.stderr)
        finished.summary += files["GITHUB_STEP_SUMMARY"].read_text("utf-8")
        assert not files["GITHUB_ENV"].read_bytes() and not files["GITHUB_PATH"].read_bytes()
        return done.returncode, read_outputs(files["GITHUB_OUTPUT"].read_text("utf-8"))


@dataclass
class Finished:
    """What is left of a job."""

    code: int = 0
    outputs: dict[str, str] = field(default_factory=dict)
    log: str = ""
    commands: list[str] = field(default_factory=list)
    summary: str = ""


def evaluate(text: Any, context: dict[str, Any]) -> str:
    def look_up(match: re.Match[str]) -> str:
        value: Any = context
        for name in match[1].split("."):
            value = value.get(name, {}) if isinstance(value, dict) else {}
        return str(value) if value != {} else ""

    return EXPRESSION.sub(look_up, str(text))


def read_commands(log: str) -> list[str]:
    """The commands in a step's output, as the runner finds them."""
    commands, token = [], None
    for line in log.splitlines():
        text = line.strip()
        if token is not None:
            token = None if text == f"::{token}::" else token
        elif text.startswith("::stop-commands::"):
            token = text.removeprefix("::stop-commands::")
        elif COMMAND.search(text):
            commands.append(text)
    assert token is None, "the runner would take no command any more"
    return commands


def read_outputs(text: str) -> dict[str, str]:
    pairs = [line.split("=", 1) for line in text.splitlines()]
    assert all(len(pair) == 2 and re.fullmatch(r"[a-z][a-z-]*", pair[0]) for pair in pairs), text
    assert len({name for name, _ in pairs}) == len(pairs)
    return dict(pairs)


def write_trace(path: Path, mm_us: float, name: str = "aten::mm", **keys: Any) -> None:
    events = [{**item, "name": item["name"].replace("aten::mm", name)} for item in program(mm_us, first_us=1000 + mm_us)]
    path.write_text(json.dumps({"schemaVersion": 1, **keys, "traceEvents": events}))


def write_program(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!{sys.executable}\n{text}")
    path.chmod(0o755)


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    made = Runner(tmp_path)
    write_trace(made.workspace / "before.json", 4000)
    write_trace(made.workspace / "after.json", 5000)
    return made


def compare(runner: Runner, **inputs: str) -> Finished:
    return runner.run(**{"install": "none", "python": sys.executable, "before": "before.json", "after": "after.json", **inputs})


def test_it_is_an_action() -> None:
    action = read_yaml(ACTION)
    assert {"name", "description", "inputs", "outputs", "runs"} <= action.keys() <= {*action, "branding", "author"}
    for name, described in action["inputs"].items():
        assert re.fullmatch(r"[a-z][a-z-]*", name) and described.keys() == {"description", "default"}
        # what is no text would reach the scripts in another spelling
        assert isinstance(described["default"], str) and described["description"]
    assert all(output.keys() == {"description", "value"} for output in action["outputs"].values())
    assert action["runs"].keys() == {"using", "steps"} and action["runs"]["using"] == "composite"
    known = {f"inputs.{name}" for name in action["inputs"]} | {"github.event.pull_request.number"}
    for step in action["runs"]["steps"]:
        assert step.keys() <= {"name", "id", "shell", "env", "run"} and step["shell"] == "bash"
        # text of an input in a script would be code
        assert "${{" not in step["run"]
        assert set(EXPRESSION.findall(" ".join(step["env"].values()))) <= known
        if "id" in step:
            known |= {f"steps.{step['id']}.outputs.{name}" for name in re.findall(r"([a-z-]+)=", step["run"])}
            known |= {f"steps.{step['id']}.outputs.{name}" for name in ("json", "markdown", "junit")}
    assert {EXPRESSION.fullmatch(output["value"])[1] for output in action["outputs"].values()} <= known  # type: ignore[index]
    # each input is used
    assert set(re.findall(r"inputs\.([a-z-]+)", ACTION.read_text("utf-8"))) == action["inputs"].keys()


def test_a_limit_that_is_exceeded_fails_the_job(runner: Runner) -> None:
    write_trace(runner.workspace / "before.json", 4000, HOSTILE)
    write_trace(runner.workspace / "after.json", 5000, HOSTILE, torch_version="##[error]x")
    finished = compare(runner, limits="step>2%\n  \nforward > 30%\n", arguments="--top\n3")
    assert finished.code == 1 and finished.commands == ["::error::A limit is exceeded."]
    assert HOSTILE in finished.log
    folder = runner.temp / "steplens-compare"
    reports = {"json": "comparison.json", "markdown": "comparison.md", "junit": "junit.xml"}
    assert finished.outputs == {
        "verdict": "slower",
        "limits": "exceeded",
        "exit-code": "1",
        **{name: str(folder / file) for name, file in reports.items()},
    }
    document = json.loads((folder / "comparison.json").read_text("utf-8"))["comparisons"][0]
    assert [judged["verdict"] for judged in document["limits"]] == ["exceeded", "kept"] and len(document["operators"]) <= 3
    tests = ElementTree.parse(folder / "junit.xml").findall(".//testcase")
    assert [test.get("name") for test in tests] == ["step>2%", "forward>30%"]
    assert finished.summary == (folder / "comparison.md").read_text("utf-8")
    assert "**Of 2 limits 1 is exceeded, 1 is kept.**" in finished.summary


def test_what_cannot_be_told_fails_unless_it_may_pass(runner: Runner) -> None:
    finished = compare(runner, limits="step>9.9%", summary="false", folder="reports of today")
    assert finished.code == 3 and finished.commands[0].startswith("::error::Whether a limit is exceeded cannot be told")
    assert (finished.outputs["limits"], finished.outputs["exit-code"], finished.summary) == ("cannot tell", "3", "")
    assert (runner.workspace / finished.outputs["junit"]).parent.name == "reports of today"
    finished = compare(runner, limits="step>9.9%", cannot_tell="pass", after="after.json\nbefore.json")
    assert finished.code == 0 and finished.commands[0].startswith("::warning::Whether a limit is exceeded cannot be told")
    assert (finished.outputs["verdict"], finished.outputs["exit-code"]) == ("slower", "3")


def test_bad_input_fails_and_says_why(runner: Runner) -> None:
    finished = compare(runner, after="$(touch evil)\n`touch evil`; touch evil")
    assert finished.code == 2 and not (runner.workspace / "evil").exists()
    assert finished.commands == ["::error::What was recorded cannot be compared; the log of the step Compare says why."]
    assert (finished.outputs["verdict"], finished.outputs["limits"], finished.outputs["exit-code"]) == ("", "", "2")
    assert "**Nothing was compared.**" in finished.summary and "does not exist" in finished.summary
    # a command line that is refused writes no report, and the one of before is not left behind
    finished = compare(runner, arguments="--nosuch")
    assert finished.code == 2 and finished.outputs["markdown"] == "" and finished.summary == "" and "--nosuch" in finished.log


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq, which gh brings along, tells comments apart")
def test_a_comment_is_made_once_and_then_replaced(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGIN", "github-actions[bot]")
    gh = """
import json, os, subprocess, sys
arguments = sys.argv[1:]
with open("calls.jsonl", "a") as calls:
    body = [open(argument.removeprefix("body=@")).read() for argument in arguments if argument.startswith("body=@")]
    calls.write(json.dumps({"arguments": arguments, "body": body, "host": os.environ["GH_HOST"]}) + "\\n")
if "graphql" in arguments:
    print(os.environ.get("LOGIN", ""))
if "--paginate" in arguments and os.path.exists("there"):
    # gh prints texts without quotes, and asks jq of each page
    query = arguments[arguments.index("--jq") + 1]
    subprocess.run(["jq", "--raw-output", query, "there"], check=True)
sys.exit(os.path.exists("forbidden") and "--silent" in arguments)
"""
    write_program(runner.folder / "bin" / "gh", gh)
    runner.path = f"{runner.folder / 'bin'}:{runner.path}"
    runner.event = {"pull_request": {"number": 5}}
    # so that nothing is compared again and again; the last step is that of the first time
    steps = read_yaml(ACTION)["runs"]["steps"]
    [step] = [step for step in steps if step["name"].startswith("Comment")]
    report = runner.folder / "report.md"
    report.write_text("the report\n")
    inputs = {"comment": "true", "comment-key": "gpu", "token": "secret"}

    def comment(**changes: str) -> tuple[list[dict[str, Any]], list[str]]:
        (runner.workspace / "calls.jsonl").write_text("")
        finished = Finished()
        context = {
            "inputs": {**inputs, **changes},
            "github": {"event": runner.event},
            "steps": {"compare": {"outputs": {"markdown": str(report)}}},
        }
        code, _ = runner._run_step(step, context, finished)
        assert code == 0, finished.log
        return list(map(json.loads, (runner.workspace / "calls.jsonl").read_text().splitlines())), finished.commands

    calls, commands = comment()
    comments = "repos/owner/training/issues/5/comments"
    assert [call["arguments"][1] for call in calls] == ["graphql", "--paginate", "--silent"]
    assert calls[1]["arguments"][2:4] == [comments, "--jq"] and calls[2]["arguments"][2:5] == ["--method", "POST", comments]
    assert calls[2]["body"] == ["<!-- steplens compare: gpu -->\nthe report\n"] and commands == []
    assert calls[2]["host"] == "github.com"
    earlier = [
        # of somebody who may change it afterwards
        {"id": 16, "user": {"login": "stranger"}, "body": "<!-- steplens compare: gpu -->\nno step is slower"},
        {"id": 17, "user": {"login": "github-actions[bot]"}, "body": "<!-- steplens compare: gpu -->\nthe last report"},
        {"id": 18, "user": {"login": "github-actions[bot]"}, "body": "<!-- steplens compare: gpu -->\nanother"},
    ]
    (runner.workspace / "there").write_text(json.dumps(earlier))
    calls, _ = comment()
    assert calls[2]["arguments"][3:5] == ["PATCH", "repos/owner/training/issues/comments/17"]
    (runner.workspace / "there").write_text(json.dumps(earlier[:1]))
    calls, _ = comment()
    assert calls[2]["arguments"][3:5] == ["POST", comments]
    # none of these ends the job
    (runner.workspace / "forbidden").touch()
    assert "the token may not write it" in comment()[1][0]
    assert "the input token is empty" in comment(token="")[1][0]
    monkeypatch.setenv("LOGIN", "")
    assert "the token does not say whose it is" in comment()[1][0]
    assert "comment-key" in comment(**{"comment-key": '") | .body | ("'})[1][0]
    assert comment(comment="false") == ([], [])
    runner.event = {}
    assert "this event is of none" in comment()[1][0]


def test_a_program_is_run_in_two_versions(runner: Runner) -> None:
    python = """
import json, os, sys
if sys.argv[1:4] != ["-m", "steplens", "bench"]:
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
with open("bench.json", "w") as called:
    json.dump(sys.argv[4:], called)
print(json.dumps({"step": {"verdict": "slower"}, "limits": [{"verdict": "exceeded"}]}))
sys.exit(1)
"""
    write_program(runner.folder / "bin" / "python", python)
    inputs = {"base": "main", "command": "python\ntrain.py\n--name=a b", "limits": "step>2%", "arguments": "--minutes=30"}
    finished = runner.run(install="none", python=str(runner.folder / "bin" / "python"), **inputs)
    assert (finished.code, finished.outputs["verdict"], finished.outputs["limits"]) == (1, "slower", "exceeded")
    folder = runner.temp / "steplens-compare"
    assert json.loads((runner.workspace / "bench.json").read_text()) == [
        "--base=main", "--head=.", f"--out={folder}/recordings", "--minutes=30", "--fail-on=step>2%", "--json",
        f"--markdown={folder}/comparison.md", f"--junit={folder}/junit.xml", "--", "python", "train.py", "--name=a b",
    ]  # fmt: skip


def test_a_program_that_fails_is_not_said_to_have_been_recorded(runner: Runner) -> None:
    write_program(runner.folder / "bin" / "python", """
import os, sys
if sys.argv[1:4] != ["-m", "steplens", "bench"]:
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
sys.exit(2)
""")  # fmt: skip
    python = str(runner.folder / "bin" / "python")
    finished = runner.run(install="none", python=python, base="main", command="train.py")
    assert finished.code == 2 and finished.commands == [
        "::error::The two versions were not compared, or not by all limits; the log of the step Compare says why."
    ]


@pytest.mark.parametrize("given", [{"before": "before.json"}, {"after": "after.json"}])
def test_recordings_beside_a_program_are_refused(runner: Runner, given: dict[str, str]) -> None:
    finished = runner.run(install="none", python=sys.executable, base="main", command="train.py", **given)
    assert finished.code == 2 and len(finished.commands) == 1
    assert "give the ones or the other" in finished.commands[0]


def test_what_is_installed(runner: Runner) -> None:
    pip = """
import sys
with open("pip.txt", "a") as calls:
    calls.write(" ".join(sys.argv[1:]) + "\\n")
"""
    write_program(runner.folder / "bin" / "python", pip)
    runner.path = f"{runner.folder / 'bin'}:{runner.path}"
    for given, expected in (
        ("", f"-m pip install --quiet --editable {ROOT}"),
        (".", "-m pip install --quiet --editable ."),
        ("./a checkout", "-m pip install --quiet --editable ./a checkout"),
        ("0.1.0rc1", "-m pip install --quiet steplens==0.1.0rc1"),
        ("none", ""),
    ):
        calls = runner.workspace / "pip.txt"
        calls.write_text("")
        # without anything to compare it only installs
        finished = runner.run(install=given)
        assert finished.code == 0 and calls.read_text().strip() == expected
        assert finished.outputs["exit-code"] == "" and finished.summary == ""
    for given in ("--index-url=http://evil", "1.0 --pre", "1;touch evil", "git+https://evil"):
        assert runner.run(install=given).code == 2 and calls.read_text() == "" and not (runner.workspace / "evil").exists()


@pytest.mark.parametrize("name", ["step-time.yml", "recorded-step-time.yml"])
def test_a_workflow_asks_for_what_the_action_has(name: str) -> None:
    workflow = read_yaml(WORKFLOWS / name)
    # YAML 1.1 takes the key "on" for true
    assert workflow.keys() == {"name", True, "permissions", "concurrency", "jobs"}
    steps = workflow["jobs"]["compare"]["steps"]
    action = read_yaml(ACTION)
    for step in steps:
        assert "${{" not in step.get("run", "")
        if step.get("uses", "").startswith("OWNER/steplens@"):
            assert step.get("with", {}).keys() <= action["inputs"].keys()
    # the workflow's outputs are the action's
    used = re.findall(r"steps\.compare\.outputs\.([a-z-]+)", (WORKFLOWS / name).read_text("utf-8"))
    assert used and set(used) <= action["outputs"].keys()


@pytest.fixture
def merge(runner: Runner) -> Runner:
    """The workspace is a checkout as GitHub makes it of a pull request: its merge into main, which has gone on since the fork."""

    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
        subprocess.run(["git", *identity, *arguments], cwd=runner.workspace, capture_output=True, check=True)

    def commit(name: str, text: str) -> None:
        (runner.workspace / name).write_text(text)
        git("add", name)
        git("commit", "--quiet", "--message", name)

    git("init", "--quiet", "--initial-branch=main")
    commit("train.py", "from pathlib import Path\nprint(*sorted(path.stem for path in Path().glob('*.part')))\n")
    git("branch", "feature")
    commit("main.part", "")
    git("checkout", "--quiet", "feature")
    commit("feature.part", "")
    git("checkout", "--quiet", "--detach", "main")
    git("merge", "--quiet", "--no-ff", "--message", "merge", "feature")
    return runner


def test_a_workflow_benches_what_the_pull_request_changes(merge: Runner) -> None:
    [step] = [step for step in read_steps("step-time.yml") if step.get("id") == "compare"]
    files = {
        side: subprocess.check_output(
            ["git", "ls-tree", "--name-only", step["with"][side]], cwd=merge.workspace, text=True
        ).split()
        for side in ("base", "head")
    }
    # what main has become since is on both sides
    assert files == {"base": ["main.part", "train.py"], "head": ["feature.part", "main.part", "train.py"]}


def read_steps(name: str) -> list[dict[str, Any]]:
    """The steps of a workflow, of which the first checks out the merge and both that it merges."""
    steps = read_yaml(WORKFLOWS / name)["jobs"]["compare"]["steps"]
    assert steps[0]["uses"].startswith("actions/checkout@") and steps[0]["with"]["fetch-depth"] == 2
    return steps


def test_a_workflow_records_both_versions_in_turn(merge: Runner) -> None:
    recorder = """
import os, subprocess, sys
with open(os.environ["RUNNER_TEMP"] + "/recorded", "a") as recorded:
    version = subprocess.run([sys.executable, sys.argv[-1]], capture_output=True, text=True).stdout.strip()
    recorded.write(f"{version}: {sys.argv[sys.argv.index('--active') + 1]} {sys.argv[sys.argv.index('--out') + 1]}\\n")
"""
    write_program(merge.folder / "bin" / "steplens", recorder)
    merge.path = f"{merge.folder / 'bin'}:{merge.path}"
    [record] = [step for step in read_steps("recorded-step-time.yml") if step.get("id") == "record"]
    step = {**record, "env": {**record["env"], "RECORDINGS": 2}}
    # a runner that is used again may have the folders of the last time
    for _ in range(2):
        code, _ = merge._run_step(step, {"github": {"event": {}}}, finished := Finished())
        assert code == 0, finished.log
    recorded = (merge.temp / "recorded").read_text().splitlines()
    # what main has become since is on both sides
    sides = (("main", "main"), ("feature main", "branch"))
    assert recorded == [f"{version}: 100 {merge.temp}/recordings/{side}" for version, side in sides] * 4
