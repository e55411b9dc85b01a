// Distinct texts by number: every name of a trace occurs thousands of times.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace steplens {

using Code = uint32_t;
constexpr Code kNoText = 0;
constexpr Code kEmptyText = 1;

class TextPool {
 public:
  TextPool();

  // The number of a text, a new one where it is new. Throws std::bad_alloc, and std::length_error behind 2^31 texts.
  Code add(const char* text, size_t size);

  size_t count() const { return ends_.size(); }
  // Texts one after another, and where each ends; those numbered 0 (no text) and 1 are empty.
  const std::string& bytes() const { return bytes_; }
  const std::vector<uint64_t>& ends() const { return ends_; }
  const char* text(Code code) const { return bytes_.data() + begin(code); }
  size_t size(Code code) const { return static_cast<size_t>(ends_[code] - begin(code)); }

 private:
  uint64_t begin(Code code) const { return code == 0 ? 0 : ends_[code - 1]; }
  void grow();

  std::string bytes_;
  std::vector<uint64_t> ends_;
  std::vector<uint32_t> hashes_;
  // a power of two of places, at most half of them taken
  std::vector<Code> places_;
  uint64_t seed_;
};

// A number that texts rarely share.
uint64_t hash_text(const char* text, size_t size, uint64_t seed);

}  // namespace steplens
