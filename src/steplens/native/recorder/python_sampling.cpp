#include "python_sampling.h"

#include <sys/prctl.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "recorder.h"
#include "ticks.h"

namespace steplens {

namespace {

// Looks at a thread that does not run are put together for as long; a killed process loses no more than them.
constexpr int64_t MOST_WAITING_NS = 100000000;
// So long whoever has Python's lock gets to call us before we ask for the lock ourselves: it may be nobody.
constexpr int64_t MOST_GRACE_NS = 500000;
// How long (us) whoever has the lock may keep it while we wait for it, where it cannot be made to call us.
constexpr unsigned long SHORT_INTERVAL_US = 20;
constexpr int64_t LONG_WAIT_NS = 5000000;
constexpr uint32_t NAME_TRIES = 3;

// Where in each period: equally likely everywhere, so that nothing that goes on at a rate of its own is met at the same place.
class Chance {
 public:
  explicit Chance(uint64_t seed) : state_(seed | 1) {}
  double next() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return static_cast<double>(state_ >> 11) / 9007199254740992.0;
  }

 private:
  uint64_t state_;
};

// As the system makes clocks of threads of their numbers (CPUCLOCK_PID).
uint32_t native_id_of(clockid_t clock) { return static_cast<uint32_t>(~(clock >> 3)); }

uint64_t processor_ns_of(clockid_t clock) {
  timespec time{};
  if (clock_gettime(clock, &time) != 0) return NO_PROCESSOR_TIME;
  return static_cast<uint64_t>(time.tv_sec) * 1000000000 + static_cast<uint64_t>(time.tv_nsec);
}

}  // namespace

// --- the stacks

void StackTable::begin_session() {
  const std::lock_guard<std::mutex> lock(mutex_);
  numbers_.clear();
  new_nodes_.clear();
}

uint32_t StackTable::number_of(uint32_t parent, uint32_t name, uint32_t line) {
  SignatureHasher hasher;
  hasher.add(static_cast<uint64_t>(parent) << 32 | name, line);
  const auto found = numbers_.find(hasher.key());
  if (found != numbers_.end()) return found->second;
  if (numbers_.size() >= MOST_STACK_NODES) return NO_STACK;
  const uint32_t number = static_cast<uint32_t>(numbers_.size());
  const std::lock_guard<std::mutex> lock(mutex_);
  new_nodes_.push_back({parent, name, line, 0});
  numbers_.emplace(hasher.key(), number);
  return number;
}

std::vector<StackNode> StackTable::take_nodes() {
  std::vector<StackNode> nodes;
  const std::lock_guard<std::mutex> lock(mutex_);
  nodes.swap(new_nodes_);
  return nodes;
}

void StackTable::after_fork() { new (&mutex_) std::mutex; }

// --- start and end

PythonSampler& PythonSampler::instance() {
  // never destroyed: Python may call at its end
  static PythonSampler* const sampler = new PythonSampler;
  return *sampler;
}

std::string PythonSampler::start(const SamplingObjects& objects, double rate_hz) {
  const std::string missing = python_.load();
  if (!missing.empty()) return "this Python does not offer " + missing;
  if (thread_.joinable()) return "stacks of the window before are still being sampled";
  if (!(rate_hz > 0)) return "a rate is more than 0";
  objects_ = objects;
  left_out_ = objects.left_out;
  counter_ = uses_counter();
  session_ = Recorder::instance().session_.load(std::memory_order_relaxed);
  names_.begin_session(objects.prefixes, objects.module_call);
  stacks_.begin_session();
  thread_texts_.begin_session();
  threads_.clear();
  thread_count_ = 0;
  stackless_.store(0, std::memory_order_relaxed);
  cut_.store(0, std::memory_order_relaxed);
  next_period_.store(0, std::memory_order_relaxed);
  wanted_.store(0, std::memory_order_relaxed);
  is_asked_.store(false, std::memory_order_relaxed);
  interpreter_ = python_.interpreter();
  period_ns_ = static_cast<int64_t>(1e9 / rate_hz);
  begin_ns_ = read_clock(CLOCK_MONOTONIC);
  ends_ = false;
  const uint64_t session = session_;
  thread_ = std::thread([this, session] { run(session); });
  return {};
}

void PythonSampler::stop() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard<std::mutex> lock(wake_mutex_);
    ends_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void PythonSampler::after_fork() {
  names_.after_fork();
  thread_texts_.after_fork();
  stacks_.after_fork();
  samples_.forget();
  wanted_.store(0, std::memory_order_relaxed);
  is_asked_.store(false, std::memory_order_relaxed);
  if (waits_since_ns_.exchange(0) != 0 && python_.switch_interval() == SHORT_INTERVAL_US) {
    python_.set_switch_interval(usual_interval_.load());
  }
  new (&wake_mutex_) std::mutex;
  new (&wake_) std::condition_variable;
  new (&thread_) std::thread;
}

// --- in the thread that wakes

bool PythonSampler::is_over(uint64_t session) const {
  const Recorder& recorder = Recorder::instance();
  return !recorder.is_recording() || recorder.session_.load(std::memory_order_relaxed) != session;
}

bool PythonSampler::sleep_until(int64_t monotonic_ns) {
  const std::chrono::steady_clock::time_point time{std::chrono::nanoseconds(monotonic_ns)};
  std::unique_lock<std::mutex> lock(wake_mutex_);
  return wake_.wait_until(lock, time, [this] { return ends_; });
}

void PythonSampler::run(uint64_t session) {
  prctl(PR_SET_NAME, "steplens-sample");
  // else the system wakes it up to 50 us late, and each time at that which suits it
  prctl(PR_SET_TIMERSLACK, 1);
  if (python_.is_finalizing()) return;
  // One state for all looks. No catch (...) from here on: Python ends threads that ask for its lock while it goes.
  const int gil = python_.take_lock();
  PyThreadState* state = python_.release_lock();
  Chance chance(static_cast<uint64_t>(begin_ns_));
  const ClockPair first = read_clock_pair(counter_);
  const int64_t grace_ns = std::min(MOST_GRACE_NS, period_ns_ / 4);
  for (;;) {
    const double place = static_cast<double>(next_period_.load(std::memory_order_acquire)) + chance.next();
    const int64_t wanted_ns = begin_ns_ + static_cast<int64_t>(place * static_cast<double>(period_ns_));
    if (sleep_until(wanted_ns) || is_over(session)) break;
    const ClockPair now = read_clock_pair(counter_, 1);
    const double passed_ns = static_cast<double>(now.monotonic_ns - first.monotonic_ns);
    const uint64_t passed_ticks = now.ticks - first.ticks;
    const double late_ns = static_cast<double>(std::max<int64_t>(now.monotonic_ns - wanted_ns, 0));
    const double late_ticks = passed_ns > 0 ? late_ns * static_cast<double>(passed_ticks) / passed_ns : late_ns;
    wanted_.store(now.ticks - std::min(static_cast<uint64_t>(late_ticks), passed_ticks), std::memory_order_release);
    if (python_.call_soon != nullptr) {
      if (!is_asked_.exchange(true) && python_.call_soon(interpreter_, on_called, nullptr, 0) != 0) is_asked_.store(false);
      const std::chrono::steady_clock::time_point time{std::chrono::nanoseconds(now.monotonic_ns + grace_ns)};
      std::unique_lock<std::mutex> lock(wake_mutex_);
      wake_.wait_until(lock, time, [this] { return ends_ || wanted_.load(std::memory_order_acquire) == 0; });
    }
    if (wanted_.load(std::memory_order_acquire) == 0) continue;
    if (python_.is_finalizing()) return;
    state = look_with_lock(state);
  }
  if (python_.is_finalizing()) return;
  python_.take_lock_again(state);
  wanted_.store(0);
  for (auto& [handle, thread] : threads_) record(thread);
  threads_.clear();
  names_.end_session();
  python_.give_lock_back(gil);
}

PyThreadState* PythonSampler::look_with_lock(PyThreadState* state) {
  const unsigned long interval = python_.set_switch_interval == nullptr ? 0 : python_.switch_interval();
  const bool is_shortened = interval > SHORT_INTERVAL_US;
  if (is_shortened) {
    usual_interval_.store(interval);
    python_.set_switch_interval(SHORT_INTERVAL_US);
    waits_since_ns_.store(read_clock(CLOCK_MONOTONIC));
  }
  python_.take_lock_again(state);
  waits_since_ns_.store(0);
  // unless the program has set another one meanwhile
  if (is_shortened && python_.switch_interval() == SHORT_INTERVAL_US) python_.set_switch_interval(interval);
  if (const uint64_t wanted = wanted_.exchange(0)) look(wanted);
  return python_.release_lock();
}

void PythonSampler::ask_less_often() {
  const int64_t since = waits_since_ns_.load();
  if (since == 0 || read_clock(CLOCK_MONOTONIC) - since < LONG_WAIT_NS) return;
  if (python_.switch_interval() == SHORT_INTERVAL_US) python_.set_switch_interval(usual_interval_.load());
}

// --- under Python's lock

int PythonSampler::on_called(void*) {
  PythonSampler& sampler = instance();
  sampler.is_asked_.store(false);
  if (const uint64_t wanted = sampler.wanted_.exchange(0)) {
    sampler.look(wanted);
    // without its lock: who waits looks again by itself at the end of the time that it gives
    sampler.wake_.notify_all();
  }
  return 0;
}

void PythonSampler::look(uint64_t wanted_ticks) {
  const int64_t period = next_period_.load(std::memory_order_relaxed);
  const int64_t current = (read_clock(CLOCK_MONOTONIC) - begin_ns_) / period_ns_;
  // what passed while nobody let go of the lock is this look's, too: nothing moved meanwhile but who had it
  const int64_t periods = std::clamp<int64_t>(current - period, 1, UINT32_MAX);
  next_period_.store(period + periods, std::memory_order_release);
  if (is_over(session_)) return;
  // a collection would run code of the program here
  const int collected = python_.disable_collection();
  try {
    look_at_threads(wanted_ticks, static_cast<uint32_t>(periods));
  } catch (const std::exception&) {
    samples_.count_dropped();
  }
  python_.clear_error();
  if (collected != 0) python_.enable_collection();
}

void PythonSampler::look_at_threads(uint64_t wanted_ticks, uint32_t periods) {
  const OwnedObject frames(python_, python_.call(python_.system_object("_current_frames"), nullptr));
  if (frames.get() == nullptr) {
    samples_.count_dropped();
    return;
  }
  round_++;
  ptrdiff_t place = 0;
  PyObject *key = nullptr, *frame = nullptr;
  while (python_.next_item(frames.get(), &place, &key, &frame) != 0) {
    const unsigned long handle = python_.as_unsigned(key);
    look_at_thread(handle, key, frame, wanted_ticks, periods);
  }
  forget_ended_threads();
}

void PythonSampler::look_at_thread(
    unsigned long handle, PyObject* key, PyObject* frame, uint64_t wanted_ticks, uint32_t periods) {
  // A thread that has a frame of Python has not ended, and cannot while we have the lock.
  clockid_t clock{};
  if (pthread_getcpuclockid(static_cast<pthread_t>(handle), &clock) != 0) return;
  auto found = threads_.find(handle);
  if (found != threads_.end() && found->second.clock != clock) {
    // another thread at the place of one that has ended
    record(found->second);
    threads_.erase(found);
    found = threads_.end();
  }
  const bool is_new = found == threads_.end();
  if (is_new) {
    if (thread_count_ >= MOST_SAMPLED_THREADS) {
      samples_.count_dropped();
      return;
    }
    SampledThread thread{};
    thread.clock = clock;
    thread.tries = NAME_TRIES;
    found = threads_.emplace(handle, thread).first;
  }
  SampledThread& thread = found->second;
  thread.round = round_;
  if (thread.tries != 0 && thread_count_ < MOST_SAMPLED_THREADS) {
    record(thread);
    name_thread(thread, key);
  }
  if (thread.is_left_out) return;
  const uint64_t processor_ns = processor_ns_of(clock);
  const uint64_t now = read_ticks(counter_);
  SampleRecord& waiting = thread.waiting;
  // who has not run since is where it was, also where that is recorded already
  const bool stands = waiting.taken_ticks != 0 && processor_ns == waiting.processor_ns && processor_ns != NO_PROCESSOR_TIME;
  if (stands && waiting.count != 0) {
    waiting.count += periods;
    waiting.taken_ticks = now;
    if (static_cast<int64_t>(waiting.count) * period_ns_ >= MOST_WAITING_NS) record(thread);
    return;
  }
  const uint32_t stack = stands ? waiting.stack : stack_of(frame);
  record(thread);
  thread.waiting = {wanted_ticks, now, processor_ns, stack, thread.number, periods, 0};
  if (stack == NO_STACK) stackless_.fetch_add(1, std::memory_order_relaxed);
}

void PythonSampler::name_thread(SampledThread& thread, PyObject* key) {
  const bool is_new = thread.tries == NAME_TRIES;
  thread.tries--;
  PyObject* const object = python_.find_item(objects_.threads, key);
  std::string name = object == nullptr ? std::string() : python_.text_attribute(object, "_name");
  if (name.empty() && !is_new) return;
  if (!name.empty()) thread.tries = 0;
  thread.is_left_out = !left_out_.empty() && name.compare(0, left_out_.size(), left_out_) == 0;
  std::string text = "{\"native_id\":" + std::to_string(native_id_of(thread.clock)) + ",\"name\":";
  append_quoted(text, name);
  text += '}';
  // each thread has a number of its own, also where another one had the same name and number of the system before
  thread.number = thread_texts_.number_of(++thread_count_, [&] { return text; });
}

uint32_t PythonSampler::stack_of(PyObject* frame) {
  frames_.clear();
  PyObject* owned = nullptr;
  while (frame != nullptr && frames_.size() < MOST_SAMPLED_FRAMES) {
    const uint64_t name = names_.number_of_running_frame(frame);
    frames_.push_back(name << 32 | static_cast<uint32_t>(python_.frame_line(frame)));
    frame = python_.frame_back(frame);
    if (owned != nullptr) python_.dec_ref(owned);
    owned = frame;
  }
  if (owned != nullptr) python_.dec_ref(owned);
  if (frame != nullptr) cut_.fetch_add(1, std::memory_order_relaxed);
  uint32_t stack = NO_STACK;
  for (auto part = frames_.rbegin(); part != frames_.rend(); ++part) {
    stack = stacks_.number_of(stack, static_cast<uint32_t>(*part >> 32), static_cast<uint32_t>(*part));
    // nothing is told of a stack but all of it
    if (stack == NO_STACK) break;
  }
  return stack;
}

void PythonSampler::record(SampledThread& thread) {
  SampleRecord& waiting = thread.waiting;
  if (waiting.count == 0) return;
  if (SampleRecord* record = samples_.next_place(session_)) {
    *record = waiting;
    samples_.commit();
  }
  waiting.count = 0;
}

void PythonSampler::forget_ended_threads() {
  for (auto each = threads_.begin(); each != threads_.end();) {
    if (each->second.round == round_) {
      ++each;
      continue;
    }
    record(each->second);
    each = threads_.erase(each);
  }
}

}  // namespace steplens
