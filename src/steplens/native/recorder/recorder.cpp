#include "recorder.h"

#include <pthread.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "file_writer.h"
#include "memory_watch.h"
#include "python_sampling.h"

namespace steplens {

namespace {

// A killed process loses no more than this; a third of what is promised, since the writer may come late.
constexpr auto FLUSH_INTERVAL = std::chrono::milliseconds(30);
// Open calls are looked at this much more seldom: there are few, and the last look counts.
constexpr int64_t CLOCK_INTERVAL_NS = 1000000000;

// The state of this thread. What other objects of a thread call while it ends is not recorded.
thread_local ThreadState* current_state = nullptr;
thread_local bool is_ending = false;

// Tells the writer that its thread ends.
struct EndNotice {
  ThreadState* state = nullptr;
  ~EndNotice() {
    current_state = nullptr;
    is_ending = true;
    if (state == nullptr) return;
    while (void* place = state->take_free_context()) ::operator delete(place);
    state->ended.store(true, std::memory_order_release);
  }
};
thread_local EndNotice end_notice;

std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& function) {
  return std::unique_ptr<at::ObserverContext>(Recorder::instance().begin_call(function));
}

void on_end(const at::RecordFunction&, at::ObserverContext* context) {
  if (context != nullptr) Recorder::instance().end_call(static_cast<CallContext*>(context)->call);
}

void on_fork_in_child() { Recorder::instance().after_fork_in_child(); }

}  // namespace

void CallContext::operator delete(void* place) {
  // a thread without a state has no end that would be noticed
  if (current_state == nullptr || !current_state->keep_free_context(place)) ::operator delete(place);
}

Recorder& Recorder::instance() {
  // never destroyed: threads may outlive the end of the program's objects
  static Recorder* const recorder = new Recorder;
  return *recorder;
}

Recorder::Recorder() : counter_(uses_counter()) { pthread_atfork(nullptr, nullptr, on_fork_in_child); }

// --- in the threads of the program

ThreadState* Recorder::thread_state() {
  ThreadState* state = current_state;
  if (state == nullptr) {
    if (is_ending) return nullptr;
    state = new_thread_state();
  }
  if (state->session != session_.load(std::memory_order_relaxed)) enter_session(state);
  return state;
}

ThreadState* Recorder::known_state() { return current_state; }

ThreadState* Recorder::new_thread_state() {
  auto* state = new ThreadState;
  state->native_id = static_cast<uint32_t>(syscall(SYS_gettid));
  state->torch_id = at::RecordFunction::currentThreadId();
  state->handle = static_cast<uint32_t>(pthread_self());
  prctl(PR_GET_NAME, state->name);
  const std::lock_guard<std::mutex> lock(threads_mutex_);
  state->number = next_thread_++;
  threads_.push_back(state);
  current_state = end_notice.state = state;
  return state;
}

void Recorder::enter_session(ThreadState* state) {
  state->session = session_.load(std::memory_order_acquire);
  state->signatures.clear();
}

uint32_t Recorder::signature_of(ThreadState* state, const at::RecordFunction& function) {
  const uint32_t options = options_.load(std::memory_order_relaxed);
  const char* name = function.name();
  SignatureHasher hasher;
  hasher.add_text(name, std::strlen(name));
  const bool with_inputs = (options & WITH_SHAPES) != 0;
  const bool with_arguments = with_inputs && keeps_arguments(name);
  if (with_inputs) add_inputs(hasher, function, with_arguments);
  std::string made;
  if (function.isNcclMeta()) {
    // differs from call to call by more than its inputs
    made = signature_text(function, with_inputs, with_arguments, false);
    hasher.add_text(made.data(), made.size());
  }
  const SignatureKey key = hasher.key();
  uint32_t number = state->signatures.find(key);
  if (number == UINT32_MAX) {
    number = signatures_.number_of(key, [&] {
      return made.empty() ? signature_text(function, with_inputs, with_arguments, (options & WITH_FLOPS) != 0) : made;
    });
    state->signatures.insert(key, number);
  }
  return number;
}

CallContext* Recorder::begin_call(const at::RecordFunction& function) {
  if (!is_recording()) return nullptr;
  ThreadState* state = thread_state();
  if (state == nullptr) return nullptr;
  const uint32_t depth = state->depth.load(std::memory_order_relaxed);
  if (depth >= MOST_OPEN_CALLS) {
    state->calls.count_dropped();
    return nullptr;
  }
  OpenCall& call = state->open[depth];
  call.owner = state;
  call.session.store(state->session, std::memory_order_relaxed);
  call.is_done.store(false, std::memory_order_relaxed);
  CallRecord& record = call.record;
  record.sequence = function.seqNr();
  record.forward_thread = static_cast<uint32_t>(function.forwardThreadId());
  record.start_thread = state->number;
  record.scope = static_cast<uint16_t>(function.scope());
  try {
    record.signature = signature_of(state, function);
  } catch (...) {
    // an input that cannot be looked at, or no memory: the program goes on
    record.signature = UINT32_MAX;
  }
  record.start_ticks = read_ticks(counter_);
  state->depth.store(depth + 1, std::memory_order_release);
  void* place = state->take_free_context();
  if (place == nullptr) place = ::operator new(sizeof(CallContext));
  return ::new (place) CallContext(&call);
}

void Recorder::end_call(OpenCall* call) {
  const uint64_t now = read_ticks(counter_);
  // in front of leaving its place, where the writer looks first: it finds a call there, or among those that have ended, or both
  record_end(*call, now);
  ThreadState* state = current_state;
  uint32_t depth = state == nullptr ? 0 : state->depth.load(std::memory_order_relaxed);
  if (call->owner == state && depth != 0 && &state->open[depth - 1] == call) {
    depth--;
    while (depth != 0 && state->open[depth - 1].is_done.load(std::memory_order_acquire)) depth--;
    state->depth.store(depth, std::memory_order_release);
  } else {
    // its thread takes it off the stack when it comes by
    call->is_done.store(true, std::memory_order_release);
  }
}

void Recorder::record_end(const OpenCall& call, uint64_t now) {
  const uint64_t session = call.session.load(std::memory_order_relaxed);
  if (session != session_.load(std::memory_order_relaxed)) return;
  ThreadState* state = current_state;
  if (state == nullptr || state->session != session) state = thread_state();
  CallRecord* place = state == nullptr ? nullptr : state->calls.next_place(session);
  if (place == nullptr) return;
  *place = call.record;
  // A collective ends a moment after who waits for it goes on, which may end the recording: it is in it up to there.
  const uint64_t stopped = stop_ticks_.load(std::memory_order_acquire);
  place->end_ticks = stopped != 0 ? std::min(now, std::max(stopped, call.record.start_ticks)) : now;
  state->calls.commit();
}

void Recorder::memory_event(const void* address, int64_t bytes) {
  if (!is_recording()) return;
  ThreadState* state = thread_state();
  MemoryRecord* place = state == nullptr ? nullptr : state->memory.next_place(state->session);
  if (place == nullptr) return;
  place->ticks = read_ticks(counter_);
  place->address = reinterpret_cast<uint64_t>(address);
  place->bytes = bytes;
  state->memory.commit();
}

// --- start and end

int Recorder::start(const char* path, uint32_t options, int64_t most_bytes, const char* metadata, std::string& error) {
  const std::lock_guard<std::mutex> lock(control_mutex_);
  if (is_recording() || writer_.joinable()) {
    error = "the recorder records already in this process";
    return EBUSY;
  }
  auto file = std::make_unique<FileWriter>();
  if (const int number = file->open(path)) {
    error = std::strerror(number);
    return number;
  }
  chunk_budget().most.store(most_bytes, std::memory_order_relaxed);
  signatures_.begin_session();
  named_signatures_ = named_python_ = named_stacks_ = named_sampled_ = 0;
  totals_ = Totals{};
  FileHeader header{};
  std::memcpy(header.magic, FILE_MAGIC, sizeof(header.magic));
  header.version = FORMAT_VERSION;
  header.options = options;
  header.pid = static_cast<uint32_t>(getpid());
  header.call_bytes = sizeof(CallRecord);
  header.memory_bytes = sizeof(MemoryRecord);
  header.clock_source = counter_ ? 1 : 0;
  const int64_t before = read_clock(CLOCK_MONOTONIC), unix_ns = read_clock(CLOCK_REALTIME), after = read_clock(CLOCK_MONOTONIC);
  header.unix_minus_monotonic_ns = unix_ns - (before + (after - before) / 2);
  file->write_header(header);
  file->write_block(BlockKind::METADATA, 0, 1, metadata, std::strlen(metadata));
  const ClockPair pair = read_clock_pair(counter_, 25);
  file->write_block(BlockKind::CLOCKS, 0, 1, &pair, sizeof(pair));
  {
    const std::lock_guard<std::mutex> threads_lock(threads_mutex_);
    bytes_before_ = added_bytes_locked();
    written_bytes_ = 0;
    file_bytes_ = file->bytes();
  }
  file_ = std::move(file);
  options_.store(options, std::memory_order_relaxed);
  stop_ticks_.store(0, std::memory_order_relaxed);
  ends_ = false;
  last_metadata_.clear();
  try {
    writer_ = std::thread([this] { write_loop(); });
  } catch (const std::exception& exception) {
    file_.reset();
    error = exception.what();
    return EAGAIN;
  }
  session_.fetch_add(1, std::memory_order_release);
  recording_.store(true, std::memory_order_release);
  if (inherited_callback_ != 0) at::removeCallback(inherited_callback_);
  inherited_callback_ = 0;
  add_callback();
  if ((options & WITH_MEMORY) != 0) watch_processor_memory();
  return 0;
}

void Recorder::add_callback() {
  at::RecordFunctionCallback callback(on_start, on_end);
  // the inputs are copied for whoever asks for them
  callback.needsInputs((options_.load(std::memory_order_relaxed) & (WITH_SHAPES | WITH_FLOPS)) != 0);
  callback_ = at::addGlobalCallback(callback);
}

void Recorder::watch_calls(bool watched) {
  const std::lock_guard<std::mutex> lock(control_mutex_);
  if (!is_recording() || watched == (callback_ != 0)) return;
  if (watched) {
    add_callback();
  } else {
    // calls that are open have a copy of the list, and end in the recording
    at::removeCallback(callback_);
    callback_ = 0;
  }
}

uint64_t Recorder::added_bytes_locked() const {
  uint64_t bytes = gone_bytes_ + PythonSampler::instance().recorded_bytes();
  for (const ThreadState* state : threads_) bytes += state->recorded_bytes();
  return bytes;
}

uint64_t Recorder::recorded_bytes() {
  const std::lock_guard<std::mutex> lock(threads_mutex_);
  const uint64_t added = added_bytes_locked() - bytes_before_;
  // a record may be in the file before its thread has counted it
  return file_bytes_ + (added > written_bytes_ ? added - written_bytes_ : 0);
}

void Recorder::stop() {
  const std::lock_guard<std::mutex> lock(control_mutex_);
  stop_locked();
}

void Recorder::stop_locked() {
  if (is_recording()) stop_ticks_.store(read_ticks(counter_), std::memory_order_release);
  recording_.store(false, std::memory_order_release);
  // PyTorch swaps its list under a lock, and what runs has its own copy: the code that it points to stays loaded
  if (callback_ != 0) at::removeCallback(callback_);
  callback_ = 0;
  leave_processor_memory();
}

Totals Recorder::finish(const char* metadata) {
  const std::lock_guard<std::mutex> lock(control_mutex_);
  stop_locked();
  if (!writer_.joinable()) return totals_;
  {
    const std::lock_guard<std::mutex> wake_lock(wake_mutex_);
    ends_ = true;
    last_metadata_ = metadata;
  }
  wake_.notify_all();
  writer_.join();
  file_.reset();
  return totals_;
}

void Recorder::after_fork_in_child() {
  recording_.store(false, std::memory_order_relaxed);
  session_.fetch_add(1, std::memory_order_relaxed);
  // Threads are gone, whatever they held is held for ever: everything that they shared is begun anew, and what was there left.
  new (&threads_mutex_) std::mutex;
  new (&control_mutex_) std::mutex;
  new (&wake_mutex_) std::mutex;
  new (&wake_) std::condition_variable;
  new (&writer_) std::thread;
  signatures_.after_fork();
  PythonCalls::instance().after_fork();
  PythonSampler::instance().after_fork();
  // PyTorch's list may be locked for ever; without a recording the callback returns at once, and who records here takes it away
  if (callback_ != 0) inherited_callback_ = callback_;
  callback_ = 0;
  if (file_) file_->abandon();
  (void)file_.release();
  for (ThreadState* state : threads_) {
    if (state == current_state) {
      state->calls.forget();
      state->memory.forget();
      state->python.calls.forget();
      state->python.session.store(0, std::memory_order_relaxed);
      state->python.depth.store(0, std::memory_order_relaxed);
      state->native_id = static_cast<uint32_t>(syscall(SYS_gettid));
    }
  }
  // the list may have been changed by another thread at the instant of the fork
  new (&threads_) std::vector<ThreadState*>;
  if (current_state != nullptr) threads_.push_back(current_state);
  chunk_budget().used.store(0, std::memory_order_relaxed);
}

// --- in the writer

void Recorder::write_loop() {
  pthread_setname_np(pthread_self(), "steplens-record");
  int64_t last_clock = 0;
  for (;;) {
    bool ends;
    {
      std::unique_lock<std::mutex> lock(wake_mutex_);
      wake_.wait_for(lock, FLUSH_INTERVAL, [this] { return ends_; });
      ends = ends_;
    }
    PythonSampler::instance().ask_less_often();
    const ClockPair pair = read_clock_pair(counter_);
    if (ends || pair.monotonic_ns - last_clock >= CLOCK_INTERVAL_NS) {
      last_clock = pair.monotonic_ns;
      file_->write_block(BlockKind::CLOCKS, 0, 1, &pair, sizeof(pair));
    }
    write_all(ends);
    if (ends) return;
    const std::lock_guard<std::mutex> lock(threads_mutex_);
    written_bytes_ = totals_.calls * sizeof(CallRecord) + totals_.memory_events * sizeof(MemoryRecord) +
                     totals_.python_samples * sizeof(SampleRecord);
    file_bytes_ = file_->bytes();
  }
}

void Recorder::write_all(bool is_end) {
  const uint64_t session = session_.load(std::memory_order_acquire);
  const auto open_calls = look_at_open_calls(session);
  // those that have begun since have no open calls that count, and may have ended one of another thread
  std::vector<ThreadState*> threads;
  {
    const std::lock_guard<std::mutex> lock(threads_mutex_);
    threads = threads_;
  }
  std::string texts;
  for (ThreadState* state : threads) {
    // before the streams are emptied: nothing comes after what is found then
    const bool has_ended = state->ended.load(std::memory_order_acquire);
    const auto name_thread = [&] {
      if (state->named_in == session) return;
      state->named_in = session;
      ThreadRecord record{};
      record.number = state->number;
      record.native_id = state->native_id;
      record.torch_id = state->torch_id;
      std::memcpy(record.name, state->name, sizeof(record.name));
      file_->write_block(BlockKind::THREADS, state->number, 1, &record, sizeof(record));
      file_->write_block(BlockKind::THREAD_HANDLES, state->number, 1, &state->handle, sizeof(state->handle));
    };
    state->calls.drain(session, [&](const CallRecord* records, uint32_t count) {
      name_thread();
      // a call is complete after its signature was added: what is taken now holds those of all calls that are taken
      write_signatures(texts);
      file_->write_block(BlockKind::CALLS, state->number, count, records, count * sizeof(CallRecord));
      if (file_->error_number() == 0) totals_.calls += count;
    });
    state->memory.drain(session, [&](const MemoryRecord* records, uint32_t count) {
      name_thread();
      file_->write_block(BlockKind::MEMORY, state->number, count, records, count * sizeof(MemoryRecord));
      if (file_->error_number() == 0) totals_.memory_events += count;
    });
    totals_.dropped_calls += state->calls.take_dropped();
    totals_.dropped_memory_events += state->memory.take_dropped();
    if (const auto open = open_calls.find(state); open != open_calls.end()) {
      // its first call may be the one that never ends
      name_thread();
      write_signatures(texts);
      const uint32_t count = static_cast<uint32_t>(open->second.size());
      file_->write_block(BlockKind::OPEN_CALLS, state->number, count, open->second.data(), count * sizeof(CallRecord));
    }
    write_python(state, name_thread);
    if (has_ended) remove_thread(state);
  }
  write_samples();
  if (is_end) {
    if (!last_metadata_.empty()) file_->write_block(BlockKind::METADATA, 0, 1, last_metadata_.data(), last_metadata_.size());
    totals_.refused_python_threads = PythonCalls::instance().refused_threads();
    totals_.lost_python_threads = PythonCalls::instance().lost_threads();
    totals_.stackless_python_samples = PythonSampler::instance().stackless_samples();
    totals_.cut_python_samples = PythonSampler::instance().cut_samples();
    totals_.file_bytes = file_->bytes() + sizeof(BlockHeader) + sizeof(Totals);
    totals_.error_number = file_->error_number();
    file_->write_block(BlockKind::END, 0, 1, &totals_, sizeof(totals_));
    file_->close();
    totals_.error_number = file_->error_number();
  }
}

std::unordered_map<ThreadState*, std::vector<CallRecord>> Recorder::look_at_open_calls(uint64_t session) {
  std::unordered_map<ThreadState*, std::vector<CallRecord>> open_calls;
  const std::lock_guard<std::mutex> lock(threads_mutex_);
  for (ThreadState* state : threads_) {
    const uint32_t depth = std::min(state->depth.load(std::memory_order_acquire), MOST_OPEN_CALLS);
    if (depth == 0) continue;
    // Its thread may be changing them: the last look before a process was killed is what counts, and the reader checks it.
    std::vector<CallRecord> open;
    const uint64_t stopped = stop_ticks_.load(std::memory_order_acquire);
    const uint64_t now = stopped != 0 ? stopped : read_ticks(counter_);
    for (uint32_t place = 0; place < depth; place++) {
      const OpenCall& call = state->open[place];
      // those of a recording before have numbers of other signatures
      if (call.session.load(std::memory_order_relaxed) != session || call.is_done.load(std::memory_order_acquire)) continue;
      open.emplace_back();
      std::memcpy(&open.back(), &call.record, sizeof(CallRecord));
      open.back().end_ticks = now;
    }
    if (!open.empty()) open_calls.emplace(state, std::move(open));
  }
  return open_calls;
}

void Recorder::write_signatures(std::string& texts) {
  if (const uint32_t added = signatures_.take_texts(texts)) {
    file_->write_block(BlockKind::SIGNATURES, named_signatures_, added, texts.data(), texts.size());
    named_signatures_ += added;
  }
}

void Recorder::write_python(ThreadState* state, const std::function<void()>& name_thread) {
  PythonStack& python = state->python;
  const uint64_t session = session_.load(std::memory_order_acquire);
  const auto write = [&](BlockKind kind, const PythonRecord* records, uint32_t count) {
    name_thread();
    std::string texts;
    if (const uint32_t added = PythonCalls::instance().take_texts(texts)) {
      file_->write_block(BlockKind::PYTHON_NAMES, named_python_, added, texts.data(), texts.size());
      named_python_ += added;
    }
    file_->write_block(kind, state->number, count, records, count * sizeof(PythonRecord));
  };
  python.calls.drain(session, [&](const PythonRecord* records, uint32_t count) {
    write(BlockKind::PYTHON_CALLS, records, count);
    if (file_->error_number() == 0) totals_.python_calls += count;
  });
  totals_.dropped_python_calls += python.calls.take_dropped();
  if (python.session.load(std::memory_order_acquire) != session) return;
  // as with open calls: a look at a thread that may be changing them
  const uint32_t depth = std::min(python.depth.load(std::memory_order_acquire), MOST_OPEN_PYTHON_CALLS);
  const uint64_t stopped = stop_ticks_.load(std::memory_order_acquire);
  const uint64_t now = stopped != 0 ? stopped : read_ticks(counter_);
  std::vector<PythonRecord> open;
  std::vector<uint64_t> starts;
  for (uint32_t place = 0; place < depth; place++) {
    const OpenPythonCall& call = python.open[place];
    open.push_back({call.start_ticks, now, call.name, place});
    starts.push_back(call.start_ticks);
  }
  if (open.empty() || starts == python.written_starts) return;
  python.written_starts = std::move(starts);
  write(BlockKind::OPEN_PYTHON_CALLS, open.data(), depth);
}

void Recorder::write_samples() {
  PythonSampler& sampler = PythonSampler::instance();
  sampler.drain(session_.load(std::memory_order_acquire), [&](const SampleRecord* records, uint32_t count) {
    // what a sample is of was added before the sample itself, and names before the stacks that have them
    const std::vector<StackNode> nodes = sampler.take_nodes();
    std::string texts;
    if (const uint32_t added = sampler.take_names(texts)) {
      file_->write_block(BlockKind::PYTHON_NAMES, named_python_, added, texts.data(), texts.size());
      named_python_ += added;
    }
    if (const uint32_t added = static_cast<uint32_t>(nodes.size())) {
      file_->write_block(BlockKind::PYTHON_STACKS, named_stacks_, added, nodes.data(), added * sizeof(StackNode));
      named_stacks_ += added;
    }
    if (const uint32_t added = sampler.take_threads(texts)) {
      file_->write_block(BlockKind::PYTHON_SAMPLED_THREADS, named_sampled_, added, texts.data(), texts.size());
      named_sampled_ += added;
    }
    file_->write_block(BlockKind::PYTHON_SAMPLES, 0, count, records, count * sizeof(SampleRecord));
    if (file_->error_number() == 0) totals_.python_samples += count;
  });
  totals_.dropped_python_samples += sampler.take_dropped();
}

void Recorder::remove_thread(ThreadState* state) {
  {
    const std::lock_guard<std::mutex> lock(threads_mutex_);
    threads_.erase(std::find(threads_.begin(), threads_.end(), state));
    gone_bytes_ += state->recorded_bytes();
  }
  state->calls.free_all();
  state->memory.free_all();
  state->python.calls.free_all();
  // a call that ends on another thread still comes back to its place here
  if (state->depth.load(std::memory_order_acquire) == 0) delete state;
}

}  // namespace steplens
