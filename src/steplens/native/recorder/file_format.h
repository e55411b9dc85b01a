// The recorder's file: a header, then blocks until its end. Little-endian; every part begins at a multiple of 8 bytes.
// docs/formats.md describes it; readers/recorder/recorder_file.py reads it. What changes here raises FORMAT_VERSION;
// readers pass over kinds of blocks that they do not know, and over what follows in totals.
#pragma once

#include <cstdint>

namespace steplens {

constexpr char FILE_MAGIC[8] = {'S', 'T', 'P', 'L', 'R', 'E', 'C', '\n'};
constexpr uint32_t FORMAT_VERSION = 1;
constexpr uint32_t BLOCK_MAGIC = 0x4b4c4253;  // "SBLK"

struct FileHeader {
  char magic[8];
  uint32_t version;
  uint32_t options;
  uint32_t pid;
  uint32_t call_bytes;    // of one record of a call
  uint32_t memory_bytes;  // of one record of an allocator event
  uint32_t clock_source;  // 0: nanoseconds of CLOCK_MONOTONIC, 1: the processor's own counter
  int64_t unix_minus_monotonic_ns;  // at the start of the recording: how Unix times are made of monotonic ones
};
static_assert(sizeof(FileHeader) == 40);

enum class BlockKind : uint32_t {
  CLOCKS = 1,      // ClockPair[count]
  SIGNATURES = 2,  // count texts of JSON, each behind its length as u32; `thread` is the number of the first one
  THREADS = 3,     // ThreadRecord[count]
  CALLS = 4,       // CallRecord[count], of one thread, in the order of their ends
  MEMORY = 5,      // MemoryRecord[count], of one thread and the processor's memory, in the order of their times
  // CallRecord[count] of one thread: what it was in at their ends, which is when this was written, or the stop; the last one counts
  OPEN_CALLS = 6,
  METADATA = 7,    // one JSON object
  END = 8,         // Totals: the recording was ended, and all of it is in the file
  PYTHON_NAMES = 9,        // count texts of JSON, as those of signatures: what calls of Python are of
  PYTHON_CALLS = 10,       // PythonRecord[count], of one thread, in the order of their ends
  OPEN_PYTHON_CALLS = 11,  // PythonRecord[count] of one thread, as those of OPEN_CALLS; it is written when it differs from the last one
  THREAD_HANDLES = 12,     // u32[count]: low half of pthread_self() of the thread, which is what CUPTI names threads by
  PYTHON_SAMPLES = 13,         // SampleRecord[count], of all threads; those of one thread in the order of their times
  PYTHON_STACKS = 14,          // StackNode[count]; `thread` is the number of the first one
  PYTHON_SAMPLED_THREADS = 15, // count texts of JSON, as those of signatures: the threads of samples
};

struct BlockHeader {
  uint32_t magic;
  BlockKind kind;
  uint32_t count;
  uint32_t thread;  // number of the thread in THREADS; of SIGNATURES that of the first text; else 0
  uint64_t bytes;   // of what follows, without the padding to 8
};
static_assert(sizeof(BlockHeader) == 24);

struct ClockPair {
  uint64_t ticks;
  int64_t monotonic_ns;
};

struct ThreadRecord {
  uint32_t number;
  uint32_t native_id;    // as the system has it
  uint64_t torch_id;     // as PyTorch has it: the "forward thread" of backward calls
  char name[16];
};
static_assert(sizeof(ThreadRecord) == 32);

struct CallRecord {
  uint64_t start_ticks;
  uint64_t end_ticks;
  int64_t sequence;         // -1: none
  uint32_t signature;       // number of its text in SIGNATURES, from 0; UINT32_MAX: it could not be made
  uint32_t forward_thread;  // torch_id of the thread of the forward call; 0: this is none of a backward pass
  uint32_t start_thread;    // number of the thread that began it
  uint16_t scope;           // at::RecordScope
  uint16_t reserved;
};
static_assert(sizeof(CallRecord) == 40);

struct MemoryRecord {
  uint64_t ticks;
  uint64_t address;
  int64_t bytes;  // -1: what was allocated at this address last is freed
};
static_assert(sizeof(MemoryRecord) == 24);

struct PythonRecord {
  uint64_t start_ticks;
  uint64_t end_ticks;
  uint32_t name;   // number of its text in PYTHON_NAMES, from 0
  uint32_t depth;  // calls of Python that it was in, as far as they are known: all that were open at the start begin at one tick
};
static_assert(sizeof(PythonRecord) == 24);

// Of a sample without a stack, and of what has no frame around it.
constexpr uint32_t NO_STACK = UINT32_MAX;
constexpr uint64_t NO_PROCESSOR_TIME = UINT64_MAX;

struct SampleRecord {
  uint64_t wanted_ticks;  // when the thread was to be looked at first
  uint64_t taken_ticks;   // when it was last
  uint64_t processor_ns;  // processor time that the thread had used by then
  uint32_t stack;         // number of the innermost frame in PYTHON_STACKS, from 0; NO_STACK: there was no place for it
  uint32_t thread;        // number of its text in PYTHON_SAMPLED_THREADS, from 0
  uint32_t count;         // periods that it stands for
  uint32_t reserved;
};
static_assert(sizeof(SampleRecord) == 40);

struct StackNode {
  uint32_t parent;  // the stack of the frame around it, whose number is less; NO_STACK: there is none
  uint32_t name;    // number of its text in PYTHON_NAMES
  uint32_t line;    // that it is at
  uint32_t reserved;
};
static_assert(sizeof(StackNode) == 16);

struct Totals {
  uint64_t calls;
  uint64_t memory_events;
  uint64_t dropped_calls;
  uint64_t dropped_memory_events;
  uint64_t file_bytes;
  int64_t error_number;  // errno of what ended writing early; 0: nothing did
  uint64_t python_calls;
  uint64_t dropped_python_calls;
  uint64_t refused_python_threads;  // a profiler of the program had them when recording began
  uint64_t lost_python_threads;     // one took them while recording went on
  uint64_t python_samples;
  uint64_t dropped_python_samples;
  uint64_t stackless_python_samples;  // there was no place for more stacks
  uint64_t cut_python_samples;        // of stacks so deep that their outermost frames are left out
};
static_assert(sizeof(Totals) == 112);

}  // namespace steplens
