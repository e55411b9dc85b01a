#include "numbers.h"

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <string>

#if !defined(__cpp_lib_to_chars)
#include <clocale>
#endif

namespace steplens {
namespace {

constexpr double kPowers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                              1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

bool is_digit(Byte byte) { return byte >= '0' && byte <= '9'; }

// A number as it is written: all digits that 64 bits hold, and where the point is.
struct Digits {
  const Byte* begin;
  const Byte* end;
  uint64_t digits;      // without the point
  int count;            // above 15 leading zeros are left out; above 18, `digits` is not all of them
  int whole_count;      // digits before the point
  int fraction_count;   // digits behind it
  uint64_t whole;       // the digits before it
  bool is_negative;
  bool has_fraction;
  bool has_exponent;
};

// So many digits a double holds, whatever they are.
constexpr int kExactDigits = 15;

int leading_zeros(const Byte* at, const Byte* end) {
  int count = 0;
  for (; at < end && (*at == '0' || *at == '.'); ++at) count += *at == '0';
  return count;
}

bool take_digits(Scanner& scanner, Digits& number) {
  const Byte* at = scanner.at;
  number.begin = at;
  number.is_negative = *at == '-';
  if (number.is_negative) ++at;
  if (!is_digit(*at)) return false;
  const Byte* first = at;
  uint64_t digits = 0;
  for (; is_digit(*at); ++at) digits = digits * 10 + (*at - '0');  // wraps behind 19 digits, where nobody looks
  if (at - first > 1000) return false;
  number.whole_count = static_cast<int>(at - first);
  if (*first == '0' && number.whole_count > 1) return false;
  number.whole = digits;
  number.fraction_count = 0;
  number.has_fraction = *at == '.';
  if (number.has_fraction) {
    const Byte* fraction = ++at;
    for (; is_digit(*at); ++at) digits = digits * 10 + (*at - '0');
    if (at == fraction || at - fraction > 1000) return false;
    number.fraction_count = static_cast<int>(at - fraction);
  }
  number.count = number.whole_count + number.fraction_count;
  if (number.count > kExactDigits) number.count -= leading_zeros(first, at);
  number.has_exponent = *at == 'e' || *at == 'E';
  if (number.has_exponent) {
    ++at;
    if (*at == '+' || *at == '-') ++at;
    if (!is_digit(*at)) return false;
    while (is_digit(*at)) ++at;
  }
  number.digits = digits;
  number.end = at;
  scanner.at = at;
  return true;
}

bool text_to_double(const Byte* begin, const Byte* end, double& real) {
#if defined(__cpp_lib_to_chars)
  const char* last = reinterpret_cast<const char*>(end);
  const auto done = std::from_chars(reinterpret_cast<const char*>(begin), last, real);
  return done.ec == std::errc() && done.ptr == last;
#else
  // a library without it: strtod, where the point is a point
  const std::lconv* local = std::localeconv();
  if (local == nullptr || local->decimal_point[0] != '.' || local->decimal_point[1] != 0) return false;
  const std::string text(reinterpret_cast<const char*>(begin), reinterpret_cast<const char*>(end));
  char* last = nullptr;
  real = std::strtod(text.c_str(), &last);
  return last == text.c_str() + text.size() && std::isfinite(real);
#endif
}

bool to_double(const Digits& number, double& real) {
  // a whole number below 2^53 and a power of ten that is exact: their quotient is rounded once
  if (!number.has_exponent && number.count <= kExactDigits && number.fraction_count <= 22) {
    real = static_cast<double>(number.digits) / kPowers[number.fraction_count];
    if (number.is_negative) real = -real;
    return true;
  }
  return text_to_double(number.begin, number.end, real) && std::isfinite(real);
}

// The same operations as `_float_ns` in kineto_times.py.
int64_t double_to_ns(double time_us) {
  if (!(std::fabs(time_us) < static_cast<double>(kLastUs))) return kBeyond;
  const double whole = std::floor(time_us);
  return static_cast<int64_t>(whole) * 1000 + static_cast<int64_t>(std::rint((time_us - whole) * 1000));
}

// The fraction in ns of up to three digits; of more, rounded as `text_ns` does.
bool fraction_to_ns(const Digits& number, int64_t& ns) {
  if (number.fraction_count <= 3) {
    // of a time there are few enough digits for 64 bits
    static const int64_t kFactors[] = {1000, 100, 10, 1};
    static const uint64_t kParts[] = {1, 10, 100, 1000};
    const int places = number.fraction_count;
    ns = static_cast<int64_t>(number.digits - number.whole * kParts[places]) * kFactors[places];
    return true;
  }
  const std::string text = "0" + std::string(reinterpret_cast<const char*>(number.end) - number.fraction_count - 1,
                                             reinterpret_cast<const char*>(number.end));
  double fraction;
  const Byte* begin = reinterpret_cast<const Byte*>(text.data());
  if (!text_to_double(begin, begin + text.size(), fraction)) return false;
  ns = static_cast<int64_t>(std::rint(fraction * 1000));
  return true;
}

}  // namespace

bool take_integer(Scanner& scanner, int64_t& number) {
  const Byte* at = scanner.at;
  const bool is_negative = *at == '-';
  if (is_negative) ++at;
  const Byte* first = at;
  uint64_t digits = 0;
  for (; is_digit(*at); ++at) digits = digits * 10 + (*at - '0');
  const auto count = at - first;
  // longer ones are left to Python
  if (count == 0 || count > 19 || digits > static_cast<uint64_t>(INT64_MAX)) return false;
  if ((*first == '0' && count > 1) || *at == '.' || *at == 'e' || *at == 'E') return false;
  number = is_negative ? -static_cast<int64_t>(digits) : static_cast<int64_t>(digits);
  scanner.at = at;
  return true;
}

bool take_real(Scanner& scanner, Number& number) {
  Digits digits;
  if (!take_digits(scanner, digits)) return false;
  number.is_integer = !digits.has_fraction && !digits.has_exponent;
  if (number.is_integer) {
    if (digits.count > 18) return false;
    number.integer = digits.is_negative ? -static_cast<int64_t>(digits.whole) : static_cast<int64_t>(digits.whole);
    number.real = static_cast<double>(number.integer);
    return true;
  }
  return to_double(digits, number.real);
}

bool take_time(Scanner& scanner, bool as_text, Time& time) {
  Digits digits;
  if (!take_digits(scanner, digits)) return false;
  const int64_t sign = digits.is_negative ? -1 : 1;
  time.is_coarse = false;
  if (digits.whole_count <= 16 && !digits.has_exponent && digits.whole < static_cast<uint64_t>(kLastUs)) {
    const auto whole = static_cast<int64_t>(digits.whole);
    int64_t fraction_ns;
    // below this limit the double next to three digits of a fraction gives the same ns, and whole numbers always do
    if (as_text || (digits.fraction_count <= 3 && whole < kFineLimitUs) || !digits.has_fraction) {
      if (!fraction_to_ns(digits, fraction_ns)) return false;
      time.ns = sign * (whole * 1000 + fraction_ns);
      time.is_coarse = !digits.is_negative && whole > kFineLimitUs;
      if (as_text || whole != kFineLimitUs) return true;
    }
  }
  double time_us;
  if (!to_double(digits, time_us)) return false;
  time.ns = double_to_ns(time_us);
  time.is_coarse = time_us > static_cast<double>(kFineLimitUs);
  return true;
}

}  // namespace steplens
