"""What summary and advice ask of each trace of a run: worked out in several processes at once, and kept beside its tables.

The processes beside this one run this module. What they answer takes the place of what this process would work out; asked about
a trace alone, nothing else changes, so that an answer that does not come is worked out when it is needed.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Container, Sequence
from functools import lru_cache, partial
from typing import Any

from steplens.advice.facts import Facts
from steplens.advice.judging.asking import RuleKey, accept_findings, is_small, judge_once, judged_rules
from steplens.advice.questions import ask_all, asked_names
from steplens.advice.registry import built_in_rules
from steplens.analysis.steps.choice import choose_alone, choose_together, chosen_steps, find_step_spans
from steplens.common.executors import map_ranks
from steplens.common.storage.files import locate_path, private_address, public_address
from steplens.common.worker_processes import SharedTasks, is_worker, serve_tasks
from steplens.run import Run, open_run
from steplens.trace.cache.accepted_answers import AcceptedAnswers, JobAnswers, SharedAnswers
from steplens.trace.cache.answer_values import decode_answer, encode_answer, estimate_bytes
from steplens.trace.cache.kept_answers import TOGETHER, pack_answers, read_answers, unpack_answers, write_answers
from steplens.trace.cache.known_answers import NOT_KEPT, STATE, run_context
from steplens.trace.kept_tables import KeptTables
from steplens.trace.together import accept_together, accepted_together, known_together
from steplens.trace.trace import Trace

#: so many take longer than a process takes to start, however small they are
_MANY_TRACES = 64
#: a larger answer is worked out again rather than kept
_MOST_BYTES = 512 << 10
#: the same of one about all traces together
_MOST_BYTES_TOGETHER = 4 << 20
#: the name of what our rules found, among the names of functions
_FINDINGS = "findings"
#: memory of a process that works answers out, beside what it asks; and of that for each byte of the tables as they are kept
_PROCESS_BYTES, _TIMES_KEPT = 300 << 20, 12
#: of the memory of the machine, all processes may take one part of so many
_PART_OF_MEMORY = 2


def prepare_answers(run: Run, progress: Callable[[int, int], None] | None = None) -> int:
    """Have what summary and advice ask of each trace of a run: as it was kept, or worked out in several processes.

    Args:
        run: as it was opened; of one that is only a part of another, or whose tables are not kept, nothing is worked out.
        progress: told now and then of how many traces answers are there, and how many traces there are.

    Returns:
        Of how many traces something was worked out.
    """
    if len(run.traces) < 2 or run.traces[0].once(_is_prepared):
        return 0
    left = use_kept_answers(run)
    run.traces[0].replace(_is_prepared, True)
    context = run_context(run.traces)
    if context is None or not left:
        return 0
    count = len(left)
    are_many = len(left) >= _MANY_TRACES or not all(is_small(run.traces[number]) for number in left)
    if are_many:
        _choose_steps(run, context)
    # each process would look at every trace for them
    choices = [_encode_choice(run.traces[number]) if are_many else None for number in left]

    def report_done(done: int) -> None:
        if progress is not None:
            progress(len(run.traces) - len(left) + done, len(run.traces))

    if run.executor is not None:
        work_out_there = partial(_answer_number, public_address(run.path), context)
        done = set()
        for (number, _), (packed, is_kept) in map_ranks(run.executor, work_out_there, zip(left, choices, strict=True)):
            _accept_packed(run, number, packed, is_kept=is_kept)
            done.add(number)
            report_done(len(done))
        choices = [choice for number, choice in zip(left, choices, strict=True) if number not in done]
        left = [number for number in left if number not in done]
    choice_texts = [None if choice is None else choice.hex() for choice in choices]
    request = {"path": private_address(run.path), "context": context, "numbers": left, "choices": choice_texts}
    tasks = SharedTasks(
        len(left), "steplens.advice.prepare", request, at_once=are_many, most_workers=lambda: _most_processes(run.traces)
    )

    def work_out_here(place: int) -> None:
        report_done(tasks.done)
        _accept_packed(run, left[place], *_work_out(run.traces[left[place]], context, choices[place]))

    tasks.run(work_out_here, take=lambda place, answer: _accept_packed(run, left[place], answer[0], is_kept=answer[1]))
    return count


def _choose_steps(run: Run, context: str) -> None:
    """Have each trace looked at for the steps that figures are of, which all of them tell together."""
    left = [number for number, trace in enumerate(run.traces) if not trace.has_answer(choose_together)]

    def take_choice(number: int, choice: bytes) -> None:
        with contextlib.suppress(ValueError):  # looked at again
            alone, spans = decode_answer(choice)
            run.traces[number].replace(choose_alone, alone)
            run.traces[number].replace(find_step_spans, spans)

    if run.executor is not None:
        for number, choice in map_ranks(run.executor, partial(_look_at_number, public_address(run.path), context), left):
            take_choice(number, choice)
        left = [number for number in left if not run.traces[number].has_answer(choose_alone)]
    request = {"path": private_address(run.path), "context": context, "numbers": left, "choices": None}
    tasks = SharedTasks(len(left), "steplens.advice.prepare", request, most_workers=lambda: _most_processes(run.traces))

    def look_here(place: int) -> None:
        with contextlib.suppress(Exception):  # as of a question: it fails where it matters
            _look_at(run.traces[left[place]])

    tasks.run(look_here, take=lambda place, choice: take_choice(left[place], choice))


def _encode_choice(trace: Trace) -> bytes | None:
    """The steps of a trace that figures are of; None where they cannot be told."""
    with contextlib.suppress(Exception):  # the same
        return encode_answer(chosen_steps(trace))
    return None


def _look_at(trace: Trace) -> tuple[Any, Any]:
    """Which steps figures are of as far as one trace tells, and when they ran."""
    try:
        return trace.once(choose_alone), trace.once(find_step_spans)
    finally:
        trace.release_tables()


def use_kept_answers(run: Run) -> list[int]:
    """Let each trace of a run answer what was worked out about it before.

    Returns:
        The numbers of the traces of which nothing was kept.
    """
    context = run_context(run.traces) if len(run.traces) > 1 else None
    if context is None:
        return [*range(len(run.traces))]
    together = read_answers(_place_of_first(run), _context_together(run, context), TOGETHER)
    if together is not None:
        accept_together(run.traces, JobAnswers(together))
    return [number for number in range(len(run.traces)) if not _accept_kept(run, number, context)]


def keep_answers(run: Run) -> None:
    """Keep what is known of each trace of a run by now beside its tables, for whoever asks about the run the next time."""
    context = run_context(run.traces) if len(run.traces) > 1 and run.traces[0].once(_is_prepared) else None
    if context is None or is_worker():
        return
    for trace in run.traces:
        # a comparison lets traces have answers of another kind
        accepted = trace.accepted if isinstance(trace.accepted, AcceptedAnswers) else None
        fresh = _encode_answers(trace, leave_out=() if accepted is None else accepted)
        before = 0 if accepted is None else len(accepted)
        if trace.kept is not None and before + len(fresh) > trace.once(_kept_count):
            kept_before = {} if accepted is None else accepted.encode_all()
            write_answers(trace.kept, context, pack_answers({**kept_before, **fresh}, asked_names()))
    _keep_together(run, context)


def _keep_together(run: Run, context: str) -> None:
    """Keep what is known of all traces together beside the tables of the first one."""
    accepted = accepted_together(run.traces)
    before = accepted.contents if isinstance(accepted, JobAnswers) else {}
    answers = {
        name: content
        for name, answer in known_together(run.traces).items()
        if estimate_bytes(answer) <= _MOST_BYTES_TOGETHER
        and (content := encode_answer(answer)) is not None
        and len(content) <= _MOST_BYTES_TOGETHER
    }
    contents = {**before, **answers}
    if contents != before:
        write_answers(_place_of_first(run), _context_together(run, context), pack_answers(contents), TOGETHER)
        accept_together(run.traces, JobAnswers(contents))


def _place_of_first(run: Run) -> KeptTables:
    place = run.traces[0].kept
    assert place is not None  # there is a context
    return place


def _context_together(run: Run, context: str) -> str:
    """What answers about all traces together depend on besides them."""
    problems = [f"{error.path}: {error.problem}" for error in run.unreadable]
    return "\0".join([context, str(run.path), *problems])


def _is_prepared(_: Trace) -> bool:
    """Whether what is asked of this run was worked out."""
    return False


def _shared_answers(_: Trace) -> SharedAnswers:
    """What all traces of a run share; the first one has it."""
    return SharedAnswers()


def _kept_count(_: Trace) -> int:
    """How many of them are kept beside its tables."""
    return 0


def _work_out(trace: Trace, context: str, choice: bytes | None = None) -> tuple[bytes, bool]:
    """Ask a trace for everything, and keep the answers. What fails is asked again, and fails, where it matters.

    Args:
        trace: which.
        context: that the answers rest on.
        choice: its ``chosen_steps``, encoded, where somebody knows them.

    Returns:
        The answers, packed, and whether they are kept.
    """
    if choice is not None:
        trace.replace(choose_together, decode_answer(choice))
    ask_all(trace)
    facts = Facts(trace)
    for rule in built_in_rules():
        if rule.judge_run is None and rule.is_about(facts.device) and rule.applies([facts]):
            with contextlib.suppress(Exception):  # the boundary of a rule
                judge_once(rule, facts)
    trace.release_tables()
    packed = pack_answers(_encode_answers(trace), asked_names())
    # a process works out thousands of them
    trace.forget_answers(keep=STATE)
    return packed, trace.kept is not None and write_answers(trace.kept, context, packed)


def _encode_answers(trace: Trace, leave_out: Container[str] = ()) -> dict[str, bytes]:
    """Everything that is known of a trace and small, by name, but for some."""
    all_answers = {**trace.known_answers(), _FINDINGS: judged_rules(trace).by_name}
    of_trace = {
        name: all_answers[name] for name in all_answers if name not in leave_out and name.rpartition(":")[2] not in NOT_KEPT
    }
    encoded = {name: encode_answer(answer) for name, answer in of_trace.items()}
    return {name: content for name, content in encoded.items() if content is not None and len(content) <= _MOST_BYTES}


def _accept_kept(run: Run, number: int, context: str) -> bool:
    """Whether answers about a trace were kept, which it has then."""
    place = run.traces[number].kept
    answers = None if place is None else read_answers(place, context, usual_names=asked_names())
    if answers is not None:
        _accept_answers(run, number, answers, is_kept=True)
    return answers is not None


def _accept_packed(run: Run, number: int, packed: bytes, is_kept: bool) -> None:
    with contextlib.suppress(ValueError):  # worked out again
        _accept_answers(run, number, unpack_answers(packed, asked_names()), is_kept=is_kept)


def _accept_answers(run: Run, number: int, answers: dict[str, bytes], *, is_kept: bool) -> None:
    """Let a trace answer what was worked out about it before, or elsewhere."""
    trace = run.traces[number]
    accepted = AcceptedAnswers(answers, run.traces[0].once(_shared_answers), number)
    trace.accept_answers(accepted)
    trace.replace(_kept_count, len(accepted) if is_kept else 0)
    judged = accepted.find_answer(_FINDINGS)
    if judged is not None:
        keys = _rule_keys()
        accept_findings(trace, {keys[name]: findings for name, findings in judged[0].items()})


@lru_cache(maxsize=1)
def _rule_keys() -> dict[str, RuleKey]:
    return {rule.name: (rule.name, rule.judge) for rule in built_in_rules()}


def _most_processes(traces: Sequence[Trace]) -> int:
    """How many processes may work beside this one, as far as memory goes."""
    largest = max((_kept_bytes(trace) for trace in traces), default=0)
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return memory // (_PART_OF_MEMORY * (_PROCESS_BYTES + _TIMES_KEPT * largest))


def _kept_bytes(trace: Trace) -> int:
    """Bytes of the files that hold the tables of a trace."""
    if trace.kept is None:
        return 0
    try:
        return sum(file.stat().st_size for file in trace.kept.folder.iterdir())
    except OSError:
        return 0


def _start_worker(request: Any) -> Callable[[int], Any]:
    numbers: list[int] = request["numbers"]
    texts: list[str | None] | None = request["choices"]
    # of a place elsewhere, whoever asks has just listed it
    path = os.fsdecode(locate_path(request["path"], listed_before=True))
    _run_of_context(path, request["context"])
    if texts is None:
        return lambda place: _look_at_number(path, request["context"], numbers[place])
    choices = [None if choice is None else bytes.fromhex(choice) for choice in texts]
    return lambda place: _answer_number(path, request["context"], (numbers[place], choices[place]))


def _answer_number(path: str, context: str, asked: tuple[int, bytes | None]) -> tuple[bytes, bool]:
    """What is known of one of the traces at a path, worked out and kept in this process; see ``_work_out``.

    Raises:
        ValueError: it has changed meanwhile.
    """
    number, choice = asked
    return _work_out(_run_of_context(path, context).traces[number], context, choice)


def _look_at_number(path: str, context: str, number: int) -> bytes | None:
    """The same of ``_look_at``."""
    trace = _run_of_context(path, context).traces[number]
    choice = encode_answer(_look_at(trace))
    trace.forget_answers(keep=STATE)
    return choice


@lru_cache(maxsize=1)
def _run_of_context(path: str, context: str) -> Run:
    run = open_run(path)
    if run_context(run.traces) != context:
        raise ValueError("it has changed meanwhile")
    return run


if __name__ == "__main__":
    serve_tasks(_start_worker)
