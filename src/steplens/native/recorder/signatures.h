// What calls have in common: the name, and the shapes, types and arguments of the inputs. Each is written once, as a text of JSON,
// and calls carry its number. A thread finds the number in a table of its own, by a hash; only what a thread sees for
// the first time takes a lock and makes the text.
#pragma once

#include <ATen/record_function.h>

#include <cstdint>
#include <cstring>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace steplens {

// A hash of 64 bits, as good as a random number: of a hundred thousand signatures two are taken for one in one of four billion runs.
using SignatureKey = uint64_t;

class SignatureHasher {
 public:
  void add(uint64_t first, uint64_t second = 0) {
    const unsigned __int128 product = static_cast<unsigned __int128>(first ^ state_) * (second ^ 0xa0761d6478bd642fULL);
    state_ = (static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64)) + 0xe7037ed1a0b428dbULL;
  }
  void add_text(const char* text, size_t length) {
    uint64_t first, second = length;
    while (length >= 8) {
      std::memcpy(&first, text, 8);
      add(first, second);
      second = 0;
      text += 8;
      length -= 8;
    }
    first = 0;
    std::memcpy(&first, text, length);
    add(first, second);
  }
  // never 0, which marks an empty place
  SignatureKey key() const { return state_ | 1; }

 private:
  uint64_t state_ = 0x8ebc6af09c88c6e3ULL;
};

// All signatures of a recording.
class SignatureTable {
 public:
  void begin_session();
  // The number of a signature; its text is made by `make` where it is new.
  template <typename Make>
  uint32_t number_of(SignatureKey key, Make&& make) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = numbers_.find(key);
    if (found != numbers_.end()) return found->second;
    // what is forgotten gets a second number and text when it comes again: the file grows, and the memory does not
    if (numbers_.size() >= MOST_KNOWN) numbers_.clear();
    append(make());
    numbers_.emplace(key, next_);
    return next_++;
  }
  // The texts since the last call, each behind its length, and how many they are.
  uint32_t take_texts(std::string& texts);
  void after_fork();

 private:
  static constexpr size_t MOST_KNOWN = 1 << 16;
  void append(const std::string& text);

  std::mutex mutex_;
  std::unordered_map<SignatureKey, uint32_t> numbers_;
  std::string new_texts_;
  uint32_t new_count_ = 0;
  uint32_t next_ = 0;
};

// What one thread knows of the table.
class KnownSignatures {
 public:
  // The number, or UINT32_MAX.
  uint32_t find(SignatureKey key) const {
    if (places_.empty()) return UINT32_MAX;
    for (size_t place = key >> 8;; place++) {
      const Entry& entry = places_[place & mask_];
      if (entry.key == key) return entry.number;
      if (entry.key == 0) return UINT32_MAX;
    }
  }
  void insert(SignatureKey key, uint32_t number);
  void clear();

 private:
  struct Entry {
    SignatureKey key = 0;
    uint32_t number = 0;
  };
  static constexpr size_t FIRST_PLACES = 256, MOST_PLACES = 1 << 14;
  std::vector<Entry> places_;
  size_t mask_ = 0, count_ = 0;
};

// Adds a text of JSON, with its quotes.
void append_quoted(std::string& text, std::string_view words);

// Adds what is seen of the inputs.
void add_inputs(SignatureHasher& hasher, const at::RecordFunction& function, bool with_arguments);

// Whether the values of the arguments of a call are kept, and not their shapes alone.
bool keeps_arguments(const char* name);

// The text of a signature.
std::string signature_text(const at::RecordFunction& function, bool with_inputs, bool with_arguments, bool with_flops);

}  // namespace steplens
