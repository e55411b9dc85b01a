// The recorder: one per process. Callbacks of PyTorch leave records in the stream of their thread; a thread of our own writes them.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "file_format.h"
#include "python_calls.h"
#include "record_stream.h"
#include "signatures.h"
#include "ticks.h"

namespace steplens {

enum Options : uint32_t {
  WITH_SHAPES = 1,
  WITH_MEMORY = 2,
  WITH_FLOPS = 4,
  WITH_PYTHON = 8,
  WITH_SAMPLES = 16,
};

struct ThreadState;

// A call that has begun: a place on the stack of its thread, which stays where it is. Its thread fills it, the thread that ends the
// call marks it, and the writer looks at it.
struct OpenCall {
  ThreadState* owner = nullptr;
  std::atomic<uint64_t> session{0};
  CallRecord record{};
  // it has ended on another thread, or before one that it contains
  std::atomic<bool> is_done{false};
};

// What PyTorch hands back at the end of a call. It deletes it later, for a range of Python whenever the range's object goes, so that
// its memory may not be used again before: it goes to a list of the thread then, from which the next one is made.
struct CallContext : at::ObserverContext {
  explicit CallContext(OpenCall* open) : call(open) {}
  OpenCall* call;
  static void operator delete(void* place);
};

// Deeper calls are counted and lost.
constexpr uint32_t MOST_OPEN_CALLS = 512;

// What one thread has; it outlives its thread until the writer has taken all of it.
struct ThreadState {
  uint32_t number = 0;
  uint32_t native_id = 0;
  uint64_t torch_id = 0;
  char name[16] = {};
  // of the thread alone
  uint32_t handle = 0;
  uint64_t session = 0;
  KnownSignatures signatures;
  // open calls, outermost first; the writer reads their records too, for the calls that a killed process was in
  std::unique_ptr<OpenCall[]> open{new OpenCall[MOST_OPEN_CALLS]};
  std::atomic<uint32_t> depth{0};
  RecordStream<CallRecord> calls;
  RecordStream<MemoryRecord> memory;
  PythonStack python;
  std::atomic<bool> ended{false};
  // memory of contexts that were deleted on this thread
  struct FreeContext {
    FreeContext* next;
  };
  FreeContext* free_contexts = nullptr;
  uint32_t free_context_count = 0;
  // of the writer: the recording in whose file it is named
  uint64_t named_in = 0;

  // Returns null where there is none.
  void* take_free_context() {
    FreeContext* taken = free_contexts;
    if (taken == nullptr) return nullptr;
    free_contexts = taken->next;
    free_context_count--;
    return taken;
  }

  // Returns whether it is kept: not more of them than calls can be open, where others begin the calls that this thread ends.
  bool keep_free_context(void* place) {
    if (free_context_count == MOST_OPEN_CALLS) return false;
    free_contexts = ::new (place) FreeContext{free_contexts};
    free_context_count++;
    return true;
  }
  uint64_t recorded_bytes() const { return calls.added() * sizeof(CallRecord) + memory.added() * sizeof(MemoryRecord); }
};

class FileWriter;

class Recorder {
 public:
  static Recorder& instance();

  int start(const char* path, uint32_t options, int64_t most_bytes, const char* metadata, std::string& error);
  // Ends recording; what is recorded is on its way to the disk until `finish`.
  void stop();
  Totals finish(const char* metadata);
  // Whether calls are recorded that begin from now on, while a recording goes on.
  void watch_calls(bool watched);
  // What the file comes to with all that is recorded by now.
  uint64_t recorded_bytes();

  CallContext* begin_call(const at::RecordFunction& function);
  void end_call(OpenCall* call);
  void memory_event(const void* address, int64_t bytes);

  bool is_recording() const { return recording_.load(std::memory_order_relaxed); }
  void after_fork_in_child();

 private:
  friend class PythonCalls;
  friend class PythonSampler;
  Recorder();
  void stop_locked();
  void add_callback();
  uint64_t added_bytes_locked() const;
  ThreadState* thread_state();
  // Of this thread, which may have none.
  static ThreadState* known_state();
  ThreadState* new_thread_state();
  void enter_session(ThreadState* state);
  uint32_t signature_of(ThreadState* state, const at::RecordFunction& function);
  void write_loop();
  void write_all(bool is_end);
  void record_end(const OpenCall& call, uint64_t now);
  std::unordered_map<ThreadState*, std::vector<CallRecord>> look_at_open_calls(uint64_t session);
  void write_signatures(std::string& texts);
  void write_python(ThreadState* state, const std::function<void()>& name_thread);
  void write_samples();
  void remove_thread(ThreadState* state);

  std::atomic<bool> recording_{false};
  std::atomic<uint64_t> session_{0};
  std::atomic<uint32_t> options_{0};
  // when recording was stopped; 0 while it goes on
  std::atomic<uint64_t> stop_ticks_{0};
  bool counter_ = false;
  at::CallbackHandle callback_ = 0;
  // of the process that this one was forked from
  at::CallbackHandle inherited_callback_ = 0;

  std::mutex threads_mutex_;
  std::vector<ThreadState*> threads_;
  uint32_t next_thread_ = 1;
  // with the lock of the threads: bytes of records of threads that have ended, of all of them before this recording, and of those in
  // the file, and of the file itself
  uint64_t gone_bytes_ = 0, bytes_before_ = 0, written_bytes_ = 0, file_bytes_ = 0;
  SignatureTable signatures_;
  // of the writer: how many of them are in the file
  uint32_t named_signatures_ = 0, named_python_ = 0, named_stacks_ = 0, named_sampled_ = 0;

  // start, stop and finish, each of which may come from any thread
  std::mutex control_mutex_;
  std::unique_ptr<FileWriter> file_;
  std::thread writer_;
  std::mutex wake_mutex_;
  std::condition_variable wake_;
  bool ends_ = false;
  std::string last_metadata_;
  Totals totals_{};
};

}  // namespace steplens
