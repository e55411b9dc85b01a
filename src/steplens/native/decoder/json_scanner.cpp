#include "json_scanner.h"

namespace steplens {
namespace {

// Where the first quote, backslash or control character is.
const Byte* find_special(const Byte* at, const Byte* last) {
#ifdef __SSE2__
  for (; last - at >= 16; at += 16) {
    const unsigned special = special_bits(at);
    if (special != 0) return at + __builtin_ctz(special);
  }
#endif
  while (at < last && *at != '"' && *at != '\\' && *at >= 0x20) ++at;
  return at;
}

int hex_digit(Byte digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  const Byte letter = digit | 0x20;
  return letter >= 'a' && letter <= 'f' ? letter - 'a' + 10 : -1;
}

// The number in four hexadecimal digits, -1 where they are none. The caller has looked that there are four bytes.
int hex_number(const Byte* at) {
  int number = 0;
  for (int place = 0; place < 4; ++place) {
    const int digit = hex_digit(at[place]);
    if (digit < 0) return -1;
    number = number * 16 + digit;
  }
  return number;
}

bool is_digit(Byte byte) { return byte >= '0' && byte <= '9'; }

bool is_high_surrogate(int code) { return code >= 0xd800 && code < 0xdc00; }
bool is_low_surrogate(int code) { return code >= 0xdc00 && code < 0xe000; }

}  // namespace

bool Scanner::take_escape() {
  // behind the backslash
  if (last - at < 2) return false;
  const Byte letter = *at++;
  if (letter != 'u') return letter != 0 && std::strchr("\"\\/bfnrt", letter) != nullptr;
  if (last - at < 4) return false;
  const int code = hex_number(at);
  if (code < 0 || is_low_surrogate(code)) return false;
  at += 4;
  if (!is_high_surrogate(code)) return true;
  if (last - at < 6 || at[0] != '\\' || at[1] != 'u' || !is_low_surrogate(hex_number(at + 2))) return false;
  at += 6;
  return true;
}

bool Scanner::take_rest_of_string(const Byte*& end, bool& has_escapes) {
  for (;;) {
    at = find_special(at, last);
    if (at >= last) return false;
    if (*at == '"') break;
    if (*at != '\\') return false;
    has_escapes = true;
    ++at;
    if (!take_escape()) return false;
  }
  end = at++;
  return true;
}

bool Scanner::take_number() {
  if (*at == '-') ++at;
  if (*at == '0') {
    ++at;
  } else if (is_digit(*at)) {
    while (is_digit(*at)) ++at;
  } else {
    return false;
  }
  if (*at == '.') {
    ++at;
    if (!is_digit(*at)) return false;
    while (is_digit(*at)) ++at;
  }
  if (*at == 'e' || *at == 'E') {
    ++at;
    if (*at == '+' || *at == '-') ++at;
    if (!is_digit(*at)) return false;
    while (is_digit(*at)) ++at;
  }
  return true;
}

bool Scanner::take_word(const char* word, size_t size) {
  if (static_cast<size_t>(last - at) < size || std::memcmp(at, word, size) != 0) return false;
  at += size;
  return true;
}

bool Scanner::skip_value() {
  // which of the open brackets are those of objects, the innermost one in the lowest bit
  uint64_t objects = 0;
  int levels = 0;
  const Byte *begin, *end;
  bool has_escapes;
  for (;;) {
    bool is_opened = false;
    switch (*at) {
      case '"':
        if (!take_string(begin, end, has_escapes)) return false;
        break;
      case '{':
      case '[':
        if (levels == kMostLevels) return false;
        objects = objects << 1 | (*at == '{');
        ++levels;
        ++at;
        is_opened = true;
        break;
      case 't':
        if (!take_word("true", 4)) return false;
        break;
      case 'f':
        if (!take_word("false", 5)) return false;
        break;
      case 'n':
        if (!take_word("null", 4)) return false;
        break;
      default:
        if (!take_number()) return false;
    }
    // to the next value: behind an opening bracket, or behind a comma once all brackets that close here are passed
    for (;;) {
      if (levels == 0) return true;
      skip_space();
      if (at >= last) return false;
      if (*at == ((objects & 1) != 0 ? '}' : ']')) {
        ++at;
        objects >>= 1;
        --levels;
        is_opened = false;
        continue;
      }
      if (!is_opened) {
        if (!take(',')) return false;
        skip_space();
      }
      break;
    }
    if ((objects & 1) != 0) {
      if (!take_string(begin, end, has_escapes)) return false;
      skip_space();
      if (!take(':')) return false;
      skip_space();
    }
  }
}

bool is_utf8(const Byte* text, size_t size) {
  size_t at = 0;
  while (at < size) {
#ifdef __SSE2__
    while (size - at >= 16 && _mm_movemask_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(text + at))) == 0) at += 16;
#endif
    uint64_t eight;
    while (size - at >= 8 && (std::memcpy(&eight, text + at, 8), (eight & 0x8080808080808080ULL) == 0)) at += 8;
    if (at >= size) break;
    const Byte first = text[at];
    if (first < 0x80) {
      ++at;
      continue;
    }
    const int more = first >= 0xf0 ? 3 : first >= 0xe0 ? 2 : 1;
    if (first < 0xc2 || first > 0xf4 || size - at <= static_cast<size_t>(more)) return false;
    const Byte second = text[at + 1];
    const Byte least = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
    const Byte most = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
    if (second < least || second > most) return false;
    for (int place = 2; place <= more; ++place) {
      if ((text[at + place] & 0xc0) != 0x80) return false;
    }
    at += static_cast<size_t>(more) + 1;
  }
  return true;
}

void resolve_escapes(const Byte* begin, const Byte* end, std::string& text) {
  text.clear();
  while (begin < end) {
    if (*begin != '\\') {
      text.push_back(static_cast<char>(*begin++));
      continue;
    }
    const Byte letter = begin[1];
    begin += 2;
    if (letter != 'u') {
      static const char kLetters[] = "bfnrt", kMeant[] = "\b\f\n\r\t";
      const char* found = std::strchr(kLetters, letter);
      text.push_back(found == nullptr ? static_cast<char>(letter) : kMeant[found - kLetters]);
      continue;
    }
    uint32_t code = static_cast<uint32_t>(hex_number(begin));
    begin += 4;
    if (is_high_surrogate(static_cast<int>(code))) {
      code = 0x10000 + ((code - 0xd800) << 10) + (static_cast<uint32_t>(hex_number(begin + 2)) - 0xdc00);
      begin += 6;
    }
    if (code < 0x80) {
      text.push_back(static_cast<char>(code));
    } else {
      if (code < 0x800) {
        text.push_back(static_cast<char>(0xc0 | code >> 6));
      } else {
        if (code < 0x10000) {
          text.push_back(static_cast<char>(0xe0 | code >> 12));
        } else {
          text.push_back(static_cast<char>(0xf0 | code >> 18));
          text.push_back(static_cast<char>(0x80 | (code >> 12 & 0x3f)));
        }
        text.push_back(static_cast<char>(0x80 | (code >> 6 & 0x3f)));
      }
      text.push_back(static_cast<char>(0x80 | (code & 0x3f)));
    }
  }
}

}  // namespace steplens
