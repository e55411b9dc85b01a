// Numbers of JSON text: integers, doubles and times, each exactly what the readers in Python make of the same text.
#pragma once

#include "json_scanner.h"

namespace steplens {

// Of a time that is no time of a profile, as in kineto_times.py.
constexpr int64_t kBeyond = INT64_MAX;
constexpr int64_t kLastUs = 4000000000000000;
constexpr int64_t kLastNs = kLastUs * 1000;
constexpr int64_t kFineLimitUs = int64_t{1} << 43;

// Passes an integer of 64 bits; false for anything else.
bool take_integer(Scanner& scanner, int64_t& number);

// Passes a number; `is_integer` says that its text has neither fraction nor exponent, and `number` is it where it has 64 bits.
struct Number {
  double real;
  int64_t integer;
  bool is_integer;
};
bool take_real(Scanner& scanner, Number& number);

// Microseconds in ns.
struct Time {
  int64_t ns;
  // a double of it is too coarse for ns
  bool is_coarse;
};
// Passes a time. As a double (`as_text` false) or digit by digit: the two differ where a double has not enough bits.
bool take_time(Scanner& scanner, bool as_text, Time& time);

}  // namespace steplens
