// Walks over JSON text without making values of it, as strictly as RFC 8259; what it accepts, any parser accepts.
//
// A piece ends with the bracket that closes its array. Nothing below reads at or behind that bracket except for the bracket
// itself, so loops that stop at it need no other bound: it is neither white space nor a digit nor part of a string.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif
#include <string>

namespace steplens {

using Byte = unsigned char;

// More than profilers write, far less than what recursion of other parsers takes.
constexpr int kMostLevels = 64;

#ifdef __SSE2__
// Of sixteen bytes a bit for each that is a quote, a backslash or a control character.
inline unsigned special_bits(const Byte* at) {
  const __m128i text = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
  const __m128i quotes = _mm_cmpeq_epi8(text, _mm_set1_epi8('"')), backslashes = _mm_cmpeq_epi8(text, _mm_set1_epi8('\\'));
  const __m128i controls = _mm_cmpeq_epi8(_mm_min_epu8(text, _mm_set1_epi8(0x1f)), text);
  return static_cast<unsigned>(_mm_movemask_epi8(_mm_or_si128(_mm_or_si128(quotes, backslashes), controls)));
}
#endif

// A place in a piece. `last` is the bracket that closes the array.
struct Scanner {
  const Byte* at;
  const Byte* last;

  void skip_space() {
    while (*at == ' ' || *at == '\n' || *at == '\r' || *at == '\t') ++at;
  }

  // Whether `wanted` comes next; then it is passed.
  bool take(Byte wanted) {
    if (at >= last || *at != wanted) return false;
    ++at;
    return true;
  }

  // Passes a string whose quote comes next; `begin` and `end` are what is between its quotes.
  bool take_string(const Byte*& begin, const Byte*& end, bool& has_escapes) {
    if (!take('"')) return false;
    begin = at;
    has_escapes = false;
#ifdef __SSE2__
    if (last - at >= 16) {
      const unsigned special = special_bits(at);
      const Byte* first = at + (special == 0 ? 0 : __builtin_ctz(special));
      if (*first == '"') {
        end = first;
        at = first + 1;
        return true;
      }
    }
#endif
    return take_rest_of_string(end, has_escapes);
  }
  // Passes a number, by the grammar alone.
  bool take_number();
  // Passes any value.
  bool skip_value();
  // Passes such a word.
  bool take_word(const char* word, size_t size);
  bool take_null() { return *at == 'n' && take_word("null", 4); }

 private:
  bool take_rest_of_string(const Byte*& end, bool& has_escapes);
  bool take_escape();
};

// Whether bytes are UTF-8: no overlong forms, no surrogates.
bool is_utf8(const Byte* text, size_t size);

// The text of a string with escapes that `take_string` passed.
void resolve_escapes(const Byte* begin, const Byte* end, std::string& text);

}  // namespace steplens
