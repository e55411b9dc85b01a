// Stacks of Python, looked at at times drawn at random: one in each period. A thread of our own wakes then and looks at all threads of
// the interpreter, under Python's lock. A thread that computes in Python keeps the lock for 5 ms where nothing is done about it: most
// of such stretches of a training are shorter, so that all samples would be of the operators behind them, which let go of it. So
// Python is asked to call us between two of its instructions, by the thread that has the lock, or where it cannot be, to let go of
// the lock sooner.
#pragma once

#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "file_format.h"
#include "python_calls.h"
#include "python_interface.h"
#include "record_stream.h"
#include "signatures.h"

namespace steplens {

// Of deeper stacks the outer frames are left out.
constexpr uint32_t MOST_SAMPLED_FRAMES = 512;
// Frames of different stacks in one recording, each of which takes some 50 bytes. Stacks that have others find no place.
constexpr uint32_t MOST_STACK_NODES = 1 << 18;
constexpr uint32_t MOST_SAMPLED_THREADS = 1 << 16;

// All stacks of a recording, as a tree of frames from the outermost on. Adding is under Python's lock, taking is of the writer.
class StackTable {
 public:
  void begin_session();
  // The number of the stack that is `parent` with one more frame; NO_STACK: there is no place.
  uint32_t number_of(uint32_t parent, uint32_t name, uint32_t line);
  std::vector<StackNode> take_nodes();
  void after_fork();

 private:
  std::mutex mutex_;
  std::unordered_map<SignatureKey, uint32_t> numbers_;
  std::vector<StackNode> new_nodes_;
};

// A thread that was there when all were looked at last.
struct SampledThread {
  clockid_t clock;  // its processor time; it holds the system's number of the thread
  uint32_t number;
  uint64_t round;
  // how often its name may still be asked for: it has none before it has begun
  uint32_t tries;
  bool is_left_out;
  // what waits to be recorded: looks at a thread that did not run in between are one record
  SampleRecord waiting;
};

// What is handed over from Python and stays alive as long as the process.
struct SamplingObjects {
  const char* prefixes;      // as of PythonObjects
  PyObject* module_call;     // likewise
  PyObject* threads;         // threading._active: the objects of threads by what pthread_self() says of them
  const char* left_out;      // threads whose names begin so are the profiler's own
};

class PythonSampler {
 public:
  static PythonSampler& instance();

  // Under Python's lock, while recording goes on. What keeps it from sampling; empty where nothing does.
  std::string start(const SamplingObjects& objects, double rate_hz);
  // Without Python's lock: waits for the thread, which may be about to take it.
  void stop();

  // Of the writer. Whoever has the lock for long is in C, and gives it up no sooner for being asked often.
  void ask_less_often();
  template <typename Take>
  void drain(uint64_t session, Take&& take) {
    samples_.drain(session, take);
  }
  uint32_t take_names(std::string& texts) { return names_.take_texts(texts); }
  uint32_t take_threads(std::string& texts) { return thread_texts_.take_texts(texts); }
  std::vector<StackNode> take_nodes() { return stacks_.take_nodes(); }
  uint64_t take_dropped() { return samples_.take_dropped(); }
  uint64_t stackless_samples() const { return stackless_.load(std::memory_order_relaxed); }
  uint64_t cut_samples() const { return cut_.load(std::memory_order_relaxed); }
  uint64_t recorded_bytes() const { return samples_.added() * sizeof(SampleRecord); }
  void after_fork();

 private:
  PythonSampler() : names_(python_) {}
  static int on_called(void*);
  PyThreadState* look_with_lock(PyThreadState* state);
  void run(uint64_t session);
  bool sleep_until(int64_t monotonic_ns);
  bool is_over(uint64_t session) const;
  void look(uint64_t wanted_ticks);
  void look_at_threads(uint64_t wanted_ticks, uint32_t periods);
  void look_at_thread(unsigned long handle, PyObject* key, PyObject* frame, uint64_t wanted_ticks, uint32_t periods);
  void name_thread(SampledThread& thread, PyObject* key);
  uint32_t stack_of(PyObject* frame);
  void record(SampledThread& thread);
  void forget_ended_threads();

  PythonInterface python_;
  PythonNames names_;
  StackTable stacks_;
  SignatureTable thread_texts_;
  RecordStream<SampleRecord> samples_;
  std::atomic<uint64_t> stackless_{0}, cut_{0};

  // under Python's lock
  SamplingObjects objects_{};
  std::string left_out_;
  std::unordered_map<unsigned long, SampledThread> threads_;
  uint64_t round_ = 0, session_ = 0;
  uint32_t thread_count_ = 0;
  std::vector<uint64_t> frames_;  // of the stack that is looked at: name and line, innermost first

  int64_t begin_ns_ = 0, period_ns_ = 0;
  bool counter_ = false;
  // the period that is sampled next; when it was to be, while nobody has looked yet; and whether Python has been asked to call
  std::atomic<int64_t> next_period_{0};
  std::atomic<uint64_t> wanted_{0};
  std::atomic<bool> is_asked_{false};
  // since when the lock is waited for, 0 while it is not, and the interval of the program in its turns (us)
  std::atomic<int64_t> waits_since_ns_{0};
  std::atomic<unsigned long> usual_interval_{0};
  PyInterpreterState* interpreter_ = nullptr;

  std::thread thread_;
  std::mutex wake_mutex_;
  std::condition_variable wake_;
  bool ends_ = false;
};

}  // namespace steplens
