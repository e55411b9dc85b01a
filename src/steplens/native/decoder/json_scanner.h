// Walks over JSON text without making values of it, as strictly as RFC 8259; what it accepts, any parser accepts.
//
// A piece ends with the bracket that closes its array. Nothing below reads at or behind that bracket except for the bracket
// itself, so loops that stop at it need no other bound: it is neither white space nor a digit nor part of a string.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace steplens {

using Byte = unsigned char;

// More than profilers write, far less than what recursion of other parsers takes.
constexpr int kMostLevels = 64;

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
  bool take_string(const Byte*& begin, const Byte*& end, bool& has_escapes);
  // Passes a number, by the grammar alone.
  bool take_number();
  // Passes any value.
  bool skip_value();
  // Passes such a word.
  bool take_word(const char* word, size_t size);
  bool take_null() { return *at == 'n' && take_word("null", 4); }

 private:
  bool take_escape();
};

// Whether bytes are UTF-8: no overlong forms, no surrogates.
bool is_utf8(const Byte* text, size_t size);

// The text of a string with escapes that `take_string` passed.
void resolve_escapes(const Byte* begin, const Byte* end, std::string& text);

}  // namespace steplens
