from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from steplens.collect.dynamic.job.agreement import EACH, Decision, Seat, choose_start_step
from steplens.collect.dynamic.job.process import Process
from steplens.collect.dynamic.plan import EDIT, NEVER, NEXT, TRIGGER

NOW_NS = 10**12


def seat(step: int, *, deciding: bool = False, busy_until: int = 0, age_s: float = 0.1, rank: int = 0) -> Seat:
    return Seat(Process(rank + 1, 1), rank, step, NOW_NS - int(age_s * 1e9), step if deciding else -1, busy_until, 1)


def decision(number: int, start: int, steps: int, origin: str = TRIGGER, **fields: object) -> Decision:
    return Decision(number, f"id{number}", origin, {}, start, start + steps, **fields)


def begin(own_step: int, *others: Seat, wanted: int = NEXT, steps: int = 3, earlier: tuple[Decision, ...] = ()) -> int:
    return choose_start_step(TRIGGER, wanted, steps, own_step, 0, others, earlier, NOW_NS)[0]


def test_one_process_begins_at_once() -> None:
    assert begin(7) == 7


def test_a_step_that_somebody_has_begun_is_not_chosen() -> None:
    assert begin(7, seat(7)) == 8
    assert begin(7, seat(6), seat(8)) == 9


def test_a_step_at_which_everybody_still_listens_is_chosen() -> None:
    assert begin(7, seat(7, deciding=True), seat(6)) == 7


def test_a_process_that_does_not_step_holds_nobody_up() -> None:
    assert begin(7, seat(-1), seat(0, age_s=500.0)) == 7


def test_processes_that_do_not_step_together_each_begin_by_themselves() -> None:
    assert begin(7, seat(5000)) == EACH
    # one that has stopped long ago is no reason to give up agreement among the others
    assert begin(5000, seat(5000), seat(7, age_s=500.0)) == 5001
    assert begin(7, seat(7), seat(5000, age_s=500.0)) == 8


def test_a_file_that_asks_for_nothing_takes_back_a_waiting_one() -> None:
    waiting = (decision(1, 100, 3, EDIT), decision(2, 200, 3, TRIGGER))
    start, refusal, superseded = choose_start_step(EDIT, NEVER, 1, 7, 0, [], waiting, NOW_NS)
    assert (start, superseded) == (0, ("id1",))
    assert "start_step is 0" in refusal


def test_a_step_that_has_passed_is_refused_for_all() -> None:
    start, refusal, _ = choose_start_step(EDIT, 7, 1, 7, 0, [seat(9)], [], NOW_NS)
    assert start == 0
    assert refusal == "start_step 7 is not after the step that runs, which is 9"


def test_steps_that_another_capture_takes() -> None:
    waiting = decision(1, 10, 5)
    assert choose_start_step(EDIT, 12, 1, 7, 0, [seat(7)], [waiting], NOW_NS)[1] == "steps 10 to 14 are taken by another capture"
    assert (
        choose_start_step(EDIT, 12, 1, 7, 20, [seat(7)], [], NOW_NS)[1] == "everything up to step 19 is taken by another capture"
    )
    assert choose_start_step(EDIT, 15, 1, 7, 0, [seat(7)], [waiting], NOW_NS)[1] == ""


def test_a_capture_that_failed_everywhere_takes_no_steps() -> None:
    failed = (decision(1, 5, 1000),)
    assert begin(7, seat(7), earlier=failed) == 8
    assert begin(7, seat(7, busy_until=1005), earlier=failed) == 1005


steps_numbers = st.integers(0, 40)
seats = st.lists(
    st.builds(
        seat,
        steps_numbers,
        deciding=st.booleans(),
        busy_until=st.one_of(st.just(0), st.integers(1, 60)),
        rank=st.integers(0, 5),
    ),
    max_size=5,
)


@given(
    own=steps_numbers, others=seats, steps=st.integers(1, 5), wanted=st.one_of(st.just(NEXT), st.integers(1, 80)), data=st.data()
)
def test_agrees_with_a_plain_search(own: int, others: list[Seat], steps: int, wanted: int, data: st.DataObject) -> None:
    starts = data.draw(st.lists(st.integers(41, 90), max_size=4, unique=True))
    origins = data.draw(st.lists(st.sampled_from([EDIT, TRIGGER]), min_size=4, max_size=4))
    earlier = [decision(number, start, 3, origins[number]) for number, start in enumerate(starts)]
    origin = data.draw(st.sampled_from([EDIT, TRIGGER]))
    start, refusal, superseded = choose_start_step(origin, wanted, steps, own, 0, others, earlier, NOW_NS)

    assert set(superseded) == {item.id for item in earlier if origin == item.origin == EDIT}
    kept = [item for item in earlier if item.id not in superseded]

    def possible(step: int) -> bool:
        heard = step >= own and all(step >= item.step + (item.deciding != item.step) for item in others)
        free = all(step >= item.busy_until for item in others)
        taken = set(itertools.chain.from_iterable(range(item.start, item.stop) for item in kept))
        return heard and free and not taken & set(range(step, step + steps))

    if wanted == NEXT:
        assert (start, refusal) == (next(step for step in range(200) if possible(step)), "")
    elif possible(wanted):
        assert (start, refusal) == (wanted, "")
    else:
        assert start == 0 and refusal
