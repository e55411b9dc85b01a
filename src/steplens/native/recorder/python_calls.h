// Calls of Python: a profile function of C on the threads of the interpreter. Python calls it under its lock, at the beginning and end
// of every call of a function of Python or of C; each thread has a stack of what it is in, and leaves a record when a call ends.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "file_format.h"
#include "python_interface.h"
#include "record_stream.h"
#include "signatures.h"

namespace steplens {

struct ThreadState;

// A call that has begun. The frame is compared, and never looked into: it may be gone.
struct OpenPythonCall {
  const void* frame;
  uint64_t start_ticks;
  uint32_t name;
  bool is_function;  // of C, called by the frame
};

// Deeper calls are counted and lost.
constexpr uint32_t MOST_OPEN_PYTHON_CALLS = 4096;

// What a thread has of Python. It changes under Python's lock alone; the writer looks at what is open.
struct PythonStack {
  std::atomic<uint64_t> session{0};
  std::unique_ptr<OpenPythonCall[]> open;
  std::atomic<uint32_t> depth{0};
  // open calls that found no place
  uint32_t beyond = 0;
  // whether the profile function of the thread was ours when that was seen last
  bool is_taken = false;
  RecordStream<PythonRecord> calls;
  // of the writer: the starts of what was open when that was written last
  std::vector<uint64_t> written_starts;
};

// What Python names: by whom, in this recording, which number stands for it. Under Python's lock.
class PythonNames {
 public:
  explicit PythonNames(const PythonInterface& python) : python_(python) {}
  void begin_session(const char* prefixes, PyObject* module_call);
  // Gives back what had to stay alive while its address stood for it.
  void end_session();
  // Of a frame that begins or goes on now.
  uint32_t number_of_frame(PyObject* frame);
  // Of one that has begun before, by the line that it is at.
  uint32_t number_of_open_frame(PyObject* frame);
  // Of one that goes on, by the line that its function begins at.
  uint32_t number_of_running_frame(PyObject* frame);
  uint32_t number_of_function(PyObject* function);
  uint32_t take_texts(std::string& texts) { return table_.take_texts(texts); }
  void after_fork() { table_.after_fork(); }

 private:
  uint32_t look_at_code(PyObject* code, PyObject* frame, SignatureKey key);
  uint32_t number_of_line(PyObject* code, PyObject* frame);
  uint32_t number_of_module(PyObject* code, PyObject* frame);
  std::string frame_text(PyObject* code, int line) const;
  bool hold(PyObject* object);

  const PythonInterface& python_;
  KnownSignatures known_;
  SignatureTable table_;
  std::unordered_set<PyObject*> held_;
  std::unordered_map<PyObject*, uint32_t> classes_;
  std::vector<std::string> prefixes_;
  PyObject* module_call_ = nullptr;
};

// What is handed over from Python; all but the prefixes stay alive as long as the process.
struct PythonObjects {
  const char* prefixes;   // of file names, to be left out; one a line
  PyObject* module_call;  // the code of torch.nn.Module.__call__; null: modules are calls like others
  // functools.partial, and what it makes the profile object of, with a capsule: a function that joins the thread, in case that the
  // program gives the object to sys.setprofile, as it does who puts back what was there before
  PyObject* partial;
  PyObject* join;
  PyObject* replaceable;  // a profile function that is a method of this function is taken away
};

class PythonCalls {
 public:
  static PythonCalls& instance();

  // All of these under Python's lock.
  // Begins on this thread, and on the others at their next call or return.
  std::string start(const PythonObjects& objects);
  // Begins on this thread; false where nothing is recorded. The innermost `skipped` frames are those that call this.
  bool join_thread(uint32_t skipped);
  // Ends on this thread; the others notice by themselves. To be called when recording has ended.
  void stop();

  // Of the writer.
  uint32_t take_texts(std::string& texts) { return names_.take_texts(texts); }
  void after_fork() { names_.after_fork(); }
  // Threads that a profiler of the program had at the start, and those that one took while recording went on.
  uint64_t refused_threads() const { return refused_.load(std::memory_order_relaxed); }
  uint64_t lost_threads() const { return lost_.load(std::memory_order_relaxed); }

 private:
  PythonCalls() : names_(python_) {}
  static int on_event(PyObject* object, PyObject* frame, int what, PyObject* argument);
  static void on_left(PyObject* capsule);
  void record_event(ThreadState* state, PyObject* frame, int what, PyObject* argument, uint64_t ticks);
  bool join_thread(uint32_t skipped, uint64_t start_ticks);
  void begin_thread(ThreadState* state, PyObject* frame, uint64_t start_ticks);
  bool take_thread(ThreadState* state);
  void take_other_threads();
  PyObject* make_profile_object(PyObject* capsule);
  bool is_ours(PyObject* profile) const;
  bool is_replaceable(PyObject* profile) const;
  void push(ThreadState* state, PyObject* frame, uint32_t name, bool is_function);
  void pop(ThreadState* state, const void* frame, bool is_function, uint64_t ticks);
  void leave(ThreadState* state, uint32_t depth, uint64_t ticks);
  void lose_thread(ThreadState* state, uint64_t ticks);

  PythonInterface python_;
  PythonNames names_;
  PythonObjects objects_{};
  // stands for a thread that has not come by yet
  PyObject* waiting_ = nullptr;
  uint64_t start_ticks_ = 0;
  bool counter_ = false;
  std::atomic<uint64_t> refused_{0}, lost_{0};
};

}  // namespace steplens
