// The clock of the recorder: the processor's own counter where it runs evenly on all processors, which is read in a third of the
// time of a call of the system's clock; that one elsewhere.
#pragma once

#include <time.h>

#include <cstdint>
#include <fstream>
#include <string>

#include "file_format.h"

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace steplens {

inline int64_t read_clock(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<int64_t>(time.tv_sec) * 1000000000 + time.tv_nsec;
}

// Whether the system itself takes its time from the processor's counter: it has checked that for all processors.
inline bool counter_is_even() {
#if defined(__x86_64__)
  std::ifstream file("/sys/devices/system/clocksource/clocksource0/current_clocksource");
  std::string source;
  file >> source;
  return source == "tsc" || source == "kvm-clock" || source == "hyperv_clocksource_tsc_page";
#elif defined(__aarch64__)
  return true;
#else
  return false;
#endif
}

inline bool uses_counter() {
  static const bool uses = counter_is_even();
  return uses;
}

inline uint64_t read_ticks(bool counter) {
#if defined(__x86_64__)
  if (counter) return __rdtsc();
#elif defined(__aarch64__)
  if (counter) {
    uint64_t ticks;
    asm volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
  }
#endif
  (void)counter;
  return static_cast<uint64_t>(read_clock(CLOCK_MONOTONIC));
}

// Both clocks at one instant: of several tries the one that took the least time counts.
inline ClockPair read_clock_pair(bool counter, int tries = 5) {
  ClockPair best{};
  uint64_t least = UINT64_MAX;
  for (int number = 0; number < tries; number++) {
    const uint64_t before = read_ticks(counter);
    const int64_t now = read_clock(CLOCK_MONOTONIC);
    const uint64_t after = read_ticks(counter);
    if (after - before <= least) {
      least = after - before;
      best = counter ? ClockPair{before + (after - before) / 2, now} : ClockPair{static_cast<uint64_t>(now), now};
    }
  }
  return best;
}

}  // namespace steplens
