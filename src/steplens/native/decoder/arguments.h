// The members of `args` that become columns.
#pragma once

#include <string>
#include <vector>

#include "json_scanner.h"
#include "tables.h"

namespace steplens {

// Kinds of arguments, in the order of native_decoder.py.
enum ArgumentSet : uint8_t { kOperatorArguments, kTaskArguments, kCallArguments, kPythonArguments, kMemoryArguments, kSetCount };

enum MemberType : uint8_t {
  kIntegerMember,    // an integer or null
  kTruncatedMember,  // a number, of which the integer is taken
  kRealMember,       // a number
  kTextMember,       // a string or null
  kRawMember,        // the text of any value
  kWantedRawMember,  // likewise, of calls with certain names alone
  kMarkMember,       // a string or null, of which it is only noted that it is there
};

struct Member {
  std::string key;
  MemberType type;
  // of the number or text of a record
  uint8_t place;
};

// Finds members by their keys.
class MemberTable {
 public:
  void add(const std::string& key, MemberType type, uint8_t place);
  // -1 where there is none.
  int find(const char* key, size_t size) const {
    for (size_t at = place_of(key, size); places_[at] != 0; at = (at + 1) & (kPlaces - 1)) {
      const Member& member = members_[places_[at] - 1];
      if (member.key.size() == size && std::memcmp(member.key.data(), key, size) == 0) return places_[at] - 1;
    }
    return -1;
  }
  const Member& operator[](int index) const { return members_[static_cast<size_t>(index)]; }
  size_t size() const { return members_.size(); }

 private:
  static constexpr size_t kPlaces = 64;
  static size_t place_of(const char* key, size_t size) {
    return size == 0 ? 0 : (size * 31 + static_cast<Byte>(key[0]) * 7 + static_cast<Byte>(key[size - 1]) * 3) & (kPlaces - 1);
  }

  std::vector<Member> members_;
  uint8_t places_[kPlaces] = {};
};

// Values that stood at such a place before. Shapes and types repeat with every step: comparing is faster than walking through.
class Recollection {
 public:
  // Passes a list or object. With `codes` its number in `pool` is left in `code`.
  bool take_value(Scanner& scanner, uint64_t context, TextPool& pool, Code& code);
  // Passes any value.
  bool skip_value(Scanner& scanner, uint64_t context);

 private:
  static constexpr size_t kPlaces = 4096;
  static constexpr size_t kMostBytes = 8 << 20;
  static size_t place_of(const Byte* at, uint64_t context);
  static bool matches(const Scanner& scanner, const TextPool& pool, Code code) {
    const size_t size = pool.size(code);
    return static_cast<size_t>(scanner.last - scanner.at) >= size && std::memcmp(scanner.at, pool.text(code), size) == 0;
  }

  std::vector<Code> taken_ = std::vector<Code>(kPlaces, kNoText);
  std::vector<Code> skipped_ = std::vector<Code>(kPlaces, kNoText);
  TextPool skipped_texts_;
};

}  // namespace steplens
