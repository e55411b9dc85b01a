#include "python_calls.h"

#include <utility>

#include "recorder.h"

namespace steplens {

namespace {

constexpr char CAPSULE[] = "steplens.recorder.thread";

// What the profile object of a thread holds: when Python lets go of it, the thread has ended, or has another profile function.
struct ThreadHold {
  uint32_t number;  // of the thread, which may be gone by then
  uint64_t session;
};

}  // namespace

PythonCalls& PythonCalls::instance() {
  // never destroyed: threads may outlive the end of the program's objects
  static PythonCalls* const calls = new PythonCalls;
  return *calls;
}

// --- start and end

std::string PythonCalls::start(const PythonObjects& objects) {
  const std::string missing = python_.load();
  if (!missing.empty()) return "this Python does not offer " + missing;
  objects_ = objects;
  counter_ = uses_counter();
  refused_.store(0, std::memory_order_relaxed);
  lost_.store(0, std::memory_order_relaxed);
  names_.begin_session(objects.prefixes, objects.module_call);
  if (waiting_ == nullptr) waiting_ = make_profile_object(python_.none);
  if (waiting_ == nullptr) {
    python_.clear_error();
    return "Python makes no object to be called with";
  }
  start_ticks_ = read_ticks(counter_);
  const OwnedObject profile(python_, python_.call(python_.system_object("getprofile"), nullptr));
  const bool is_free = profile.get() == python_.none || is_ours(profile.get()) || is_replaceable(profile.get());
  if (!is_free) refused_.fetch_add(1, std::memory_order_relaxed);
  // since 3.13 all threads are taken or none
  if (is_free || python_.version < PYTHON_3_13) take_other_threads();
  if (is_free) join_thread(0, start_ticks_);
  python_.clear_error();
  return {};
}

void PythonCalls::take_other_threads() {
  if (python_.version >= PYTHON_3_13) {
    // The state of another thread cannot be looked at without letting go of the lock, which that thread may end under. A thread that
    // is ours already stays so.
    python_.set_profile_of_all_threads(on_event, waiting_);
    return;
  }
  PyThreadState* const current = python_.current_thread();
  PyObject* const get_profile = python_.system_object("getprofile");
  for (PyThreadState* thread = python_.first_thread(python_.interpreter()); thread != nullptr; thread = python_.next_thread(thread)) {
    if (thread == current) continue;
    python_.swap_thread(thread);
    {
      const OwnedObject profile(python_, python_.call(get_profile, nullptr));
      if (profile.get() == python_.none || is_replaceable(profile.get())) {
        python_.set_profile(on_event, waiting_);
      } else if (!is_ours(profile.get())) {
        refused_.fetch_add(1, std::memory_order_relaxed);
      }
    }
    python_.clear_error();
    python_.swap_thread(current);
  }
}

PyObject* PythonCalls::make_profile_object(PyObject* capsule) {
  return python_.call(objects_.partial, objects_.join, capsule, nullptr);
}

bool PythonCalls::is_ours(PyObject* profile) const {
  const OwnedObject function(python_, profile == nullptr ? nullptr : python_.attribute(profile, "func"));
  if (function.get() == nullptr) python_.clear_error();
  return function.get() == objects_.join;
}

bool PythonCalls::is_replaceable(PyObject* profile) const {
  // of a thread that begins the hook of new threads is the profile function
  if (profile == objects_.join) return true;
  const OwnedObject function(python_, profile == nullptr ? nullptr : python_.attribute(profile, "__func__"));
  if (function.get() == nullptr) python_.clear_error();
  return function.get() != nullptr && function.get() == objects_.replaceable;
}

bool PythonCalls::take_thread(ThreadState* state) {
  auto* hold = new ThreadHold{state->number, state->session};
  const OwnedObject capsule(python_, python_.new_capsule(hold, CAPSULE, on_left));
  if (capsule.get() == nullptr) delete hold;
  const OwnedObject profile(python_, capsule.get() == nullptr ? nullptr : make_profile_object(capsule.get()));
  if (profile.get() == nullptr) {
    python_.clear_error();
    return false;
  }
  python_.set_profile(on_event, profile.get());
  state->python.is_taken = true;
  return true;
}

bool PythonCalls::join_thread(uint32_t skipped) { return join_thread(skipped, read_ticks(counter_)); }

bool PythonCalls::join_thread(uint32_t skipped, uint64_t start_ticks) {
  Recorder& recorder = Recorder::instance();
  if (waiting_ == nullptr || !recorder.is_recording()) return false;
  ThreadState* state = recorder.thread_state();
  if (state == nullptr) return false;
  if (state->python.session.load(std::memory_order_relaxed) == state->session) lose_thread(state, start_ticks);
  PyObject* frame = python_.frame_of_thread(python_.current_thread());
  for (; skipped != 0 && frame != nullptr; skipped--) {
    PyObject* back = python_.frame_back(frame);
    python_.dec_ref(frame);
    frame = back;
  }
  const OwnedObject innermost(python_, frame);
  begin_thread(state, frame, start_ticks);
  return take_thread(state);
}

void PythonCalls::stop() {
  if (waiting_ == nullptr) return;
  const OwnedObject profile(python_, python_.call(python_.system_object("getprofile"), nullptr));
  if (is_ours(profile.get())) {
    python_.set_profile(nullptr, nullptr);
  } else if (ThreadState* state = Recorder::instance().known_state(); state != nullptr && state->python.is_taken) {
    // who took this thread has kept what we would have been told by
    lose_thread(state, read_ticks(counter_));
  }
  names_.end_session();
  python_.clear_error();
}

// --- at the calls of the program

int PythonCalls::on_event(PyObject*, PyObject* frame, int what, PyObject* argument) {
  PythonCalls& calls = instance();
  Recorder& recorder = Recorder::instance();
  const uint64_t ticks = read_ticks(calls.counter_);
  try {
    if (!recorder.is_recording() || (recorder.options_.load(std::memory_order_relaxed) & WITH_PYTHON) == 0) {
      // also in a child of a process that recorded
      if (ThreadState* state = recorder.known_state()) state->python.is_taken = false;
      calls.python_.set_profile(nullptr, nullptr);
      return 0;
    }
    ThreadState* state = recorder.thread_state();
    if (state != nullptr) calls.record_event(state, frame, what, argument, ticks);
  } catch (...) {
    // no memory: the program goes on
  }
  return 0;
}

void PythonCalls::record_event(ThreadState* state, PyObject* frame, int what, PyObject* argument, uint64_t ticks) {
  PythonStack& stack = state->python;
  if (stack.session.load(std::memory_order_relaxed) != state->session) {
    // what is open has been so since recording began: nothing has ended on this thread
    if (what == PYTHON_CALL) {
      const OwnedObject back(python_, python_.frame_back(frame));
      begin_thread(state, back.get(), start_ticks_);
    } else {
      begin_thread(state, frame, start_ticks_);
    }
    take_thread(state);
  }
  switch (what) {
    case PYTHON_CALL:
      push(state, frame, names_.number_of_frame(frame), false);
      break;
    case FUNCTION_CALL:
      push(state, frame, names_.number_of_function(argument), true);
      break;
    case PYTHON_RETURN:
      pop(state, frame, false, ticks);
      break;
    case FUNCTION_EXCEPTION:
    case FUNCTION_RETURN:
      pop(state, frame, true, ticks);
      break;
    default:
      break;
  }
}

void PythonCalls::begin_thread(ThreadState* state, PyObject* frame, uint64_t start_ticks) {
  PythonStack& stack = state->python;
  std::vector<uint32_t> names;
  std::vector<const void*> frames;
  PyObject* owned = nullptr;
  while (frame != nullptr && names.size() < MOST_OPEN_PYTHON_CALLS / 2) {
    names.push_back(names_.number_of_open_frame(frame));
    frames.push_back(frame);
    frame = python_.frame_back(frame);
    if (owned != nullptr) python_.dec_ref(owned);
    owned = frame;
  }
  if (owned != nullptr) python_.dec_ref(owned);
  if (stack.open == nullptr) stack.open.reset(new OpenPythonCall[MOST_OPEN_PYTHON_CALLS]);
  stack.depth.store(0, std::memory_order_relaxed);
  stack.beyond = 0;
  const uint32_t depth = static_cast<uint32_t>(names.size());
  for (uint32_t place = 0; place < depth; place++) {
    const uint32_t row = depth - 1 - place;
    stack.open[place] = {frames[row], start_ticks, names[row], false};
  }
  stack.depth.store(depth, std::memory_order_release);
  stack.session.store(state->session, std::memory_order_release);
}

void PythonCalls::push(ThreadState* state, PyObject* frame, uint32_t name, bool is_function) {
  PythonStack& stack = state->python;
  const uint32_t depth = stack.depth.load(std::memory_order_relaxed);
  if (depth >= MOST_OPEN_PYTHON_CALLS) {
    stack.beyond++;
    stack.calls.count_dropped();
    return;
  }
  stack.open[depth] = {frame, read_ticks(counter_), name, is_function};
  stack.depth.store(depth + 1, std::memory_order_release);
}

void PythonCalls::pop(ThreadState* state, const void* frame, bool is_function, uint64_t ticks) {
  PythonStack& stack = state->python;
  if (stack.beyond != 0) {
    stack.beyond--;
    return;
  }
  const uint32_t depth = stack.depth.load(std::memory_order_relaxed);
  // the innermost one; else the end of another was not told, or the begin of this one was before recording
  for (uint32_t place = depth; place-- != 0;) {
    const OpenPythonCall& call = stack.open[place];
    if (call.frame == frame && call.is_function == is_function) {
      leave(state, place, ticks);
      return;
    }
    // a call of C that began before recording is none of the frames around the one that made it
    if (call.frame == frame && is_function) return;
  }
}

void PythonCalls::leave(ThreadState* state, uint32_t depth, uint64_t ticks) {
  PythonStack& stack = state->python;
  const uint64_t session = stack.session.load(std::memory_order_relaxed);
  for (uint32_t place = stack.depth.load(std::memory_order_relaxed); place-- != depth;) {
    const OpenPythonCall call = stack.open[place];
    // before its record exists: the writer shall not take it for one that is open
    stack.depth.store(place, std::memory_order_release);
    PythonRecord* record = stack.calls.next_place(session);
    if (record == nullptr) continue;
    *record = {call.start_ticks, ticks, call.name, place};
    stack.calls.commit();
  }
}

void PythonCalls::lose_thread(ThreadState* state, uint64_t ticks) {
  // a thread that has ended is in nothing any more
  state->python.is_taken = false;
  if (state->python.depth.load(std::memory_order_relaxed) == 0) return;
  lost_.fetch_add(1, std::memory_order_relaxed);
  leave(state, 0, ticks);
}

void PythonCalls::on_left(PyObject* capsule) {
  PythonCalls& calls = instance();
  Recorder& recorder = Recorder::instance();
  auto* hold = static_cast<ThreadHold*>(calls.python_.capsule_pointer(capsule, CAPSULE));
  if (hold == nullptr) return;
  const uint64_t ticks = read_ticks(calls.counter_);
  if (recorder.is_recording() && hold->session == recorder.session_.load(std::memory_order_relaxed)) {
    const std::lock_guard<std::mutex> lock(recorder.threads_mutex_);
    for (ThreadState* state : recorder.threads_) {
      const bool is_held = state->number == hold->number && state->python.session.load(std::memory_order_relaxed) == hold->session;
      if (is_held) calls.lose_thread(state, ticks);
    }
  }
  delete hold;
}

}  // namespace steplens
