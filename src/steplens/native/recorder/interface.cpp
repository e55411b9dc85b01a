// The plain C interface, which collect/recorder/recorder_library.py calls.
#include <cerrno>
#include <cstring>
#include <exception>
#include <memory>
#include <string>

#include "python_sampling.h"
#include "recorder.h"

#define STEPLENS_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

// PyTorch keeps a view of the name.
struct Range {
  std::string name;
  at::RecordFunction function{at::RecordScope::FUNCTION};
};

void copy_text(const std::string& text, char* place, size_t bytes) {
  if (bytes == 0) return;
  const size_t length = text.size() < bytes - 1 ? text.size() : bytes - 1;
  std::memcpy(place, text.data(), length);
  place[length] = 0;
}

}  // namespace

// Begins to record into a new file. 0, or a number of errno with a text in `error`.
STEPLENS_EXPORT int steplens_recorder_start(
    const char* path, uint32_t options, int64_t most_bytes, const char* metadata, char* error, size_t error_bytes) {
  std::string text;
  int number = 0;
  try {
    number = steplens::Recorder::instance().start(path, options, most_bytes, metadata, text);
  } catch (const std::exception& exception) {
    number = ENOMEM;
    text = exception.what();
  }
  copy_text(text, error, error_bytes);
  return number;
}

// Ends recording, in no time; the file is complete after `finish`.
STEPLENS_EXPORT int steplens_recorder_stop() {
  try {
    steplens::Recorder::instance().stop();
    return 0;
  } catch (const std::exception&) {
    return ENOMEM;
  }
}

// Waits until all is written, with `metadata` behind it, and closes the file.
STEPLENS_EXPORT int steplens_recorder_finish(const char* metadata, steplens::Totals* totals) {
  try {
    *totals = steplens::Recorder::instance().finish(metadata);
    return 0;
  } catch (const std::exception&) {
    return ENOMEM;
  }
}

// Whether calls are recorded that begin from now on, while a recording goes on.
STEPLENS_EXPORT int steplens_recorder_watch_calls(int watched) {
  try {
    steplens::Recorder::instance().watch_calls(watched != 0);
    return 0;
  } catch (const std::exception&) {
    return ENOMEM;
  }
}

// A call of this name from now until `end_range` of the same thread, for all who listen; nullptr where nobody does. Kineto's own such
// ranges for Python exist while it records, and not else.
STEPLENS_EXPORT void* steplens_recorder_begin_range(const char* name) {
  try {
    auto range = std::make_unique<Range>();
    if (!range->function.isActive()) return nullptr;
    range->name = name;
    range->function.before(range->name.c_str());
    return range.release();
  } catch (const std::exception&) {
    return nullptr;
  }
}

STEPLENS_EXPORT void steplens_recorder_end_range(void* range) { delete static_cast<Range*>(range); }

// What the file comes to with all that is recorded by now.
STEPLENS_EXPORT uint64_t steplens_recorder_bytes() { return steplens::Recorder::instance().recorded_bytes(); }

STEPLENS_EXPORT int steplens_recorder_is_recording() { return steplens::Recorder::instance().is_recording(); }

// The next three are called with Python's lock. Begins to record calls of Python, after `start` with WITH_PYTHON. 0, or -1 with a text.
STEPLENS_EXPORT int steplens_recorder_start_python(const steplens::PythonObjects* objects, char* error, size_t error_bytes) {
  std::string text;
  try {
    text = steplens::PythonCalls::instance().start(*objects);
  } catch (const std::exception& exception) {
    text = exception.what();
  }
  copy_text(text, error, error_bytes);
  return text.empty() ? 0 : -1;
}

// Records the calls of this thread, too, which its `skipped` innermost frames are none of; 0 where nothing is recorded.
STEPLENS_EXPORT int steplens_recorder_join_python(uint32_t skipped) {
  try {
    return steplens::PythonCalls::instance().join_thread(skipped);
  } catch (const std::exception&) {
    return 0;
  }
}

// After `stop`.
STEPLENS_EXPORT void steplens_recorder_stop_python() {
  try {
    steplens::PythonCalls::instance().stop();
  } catch (const std::exception&) {
    // no memory to leave with: threads leave by themselves
  }
}

// With Python's lock, after `start` with WITH_SAMPLES: looks at the stacks of all threads `rate_hz` times a second. 0, or -1 with a text.
STEPLENS_EXPORT int steplens_recorder_start_sampling(
    const steplens::SamplingObjects* objects, double rate_hz, char* error, size_t error_bytes) {
  std::string text;
  try {
    text = steplens::PythonSampler::instance().start(*objects, rate_hz);
  } catch (const std::exception& exception) {
    text = exception.what();
  }
  copy_text(text, error, error_bytes);
  return text.empty() ? 0 : -1;
}

// After `stop`, without Python's lock: who samples may be about to take it.
STEPLENS_EXPORT void steplens_recorder_stop_sampling() {
  try {
    steplens::PythonSampler::instance().stop();
  } catch (const std::exception&) {
    // it ends by itself
  }
}
