#include "text_pool.h"

#include <chrono>
#include <cstring>
#include <stdexcept>

namespace steplens {
namespace {

uint64_t load_eight(const char* text) {
  uint64_t word;
  std::memcpy(&word, text, 8);
  return word;
}

uint64_t mix(uint64_t left, uint64_t right) {
  const unsigned __int128 product = static_cast<unsigned __int128>(left) * right;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

}  // namespace

uint64_t hash_text(const char* text, size_t size, uint64_t seed) {
  constexpr uint64_t kFirst = 0xa0761d6478bd642fULL, kSecond = 0xe7037ed1a0b428dbULL;
  uint64_t hash = seed ^ kFirst;
  size_t left = size;
  for (; left >= 16; left -= 16, text += 16) hash = mix(load_eight(text) ^ kSecond, load_eight(text + 8) ^ hash);
  uint64_t first = 0, second = 0;
  if (left >= 8) {
    first = load_eight(text);
    second = load_eight(text + left - 8);
  } else {
    std::memcpy(&first, text, left);
  }
  return mix(kSecond ^ size, mix(first ^ kFirst, second ^ hash));
}

TextPool::TextPool()
    : ends_{0}, hashes_{0}, places_(1024, kNoText),
      // nobody who writes a trace knows which texts share a place
      seed_(static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count()) ^
            reinterpret_cast<uintptr_t>(this) * 0x9e3779b97f4a7c15ULL) {
  add("", 0);
}

Code TextPool::add(const char* text, size_t size) {
  const auto hash = static_cast<uint32_t>(hash_text(text, size, seed_));
  size_t place = hash & (places_.size() - 1);
  for (Code code; (code = places_[place]) != kNoText; place = (place + 1) & (places_.size() - 1)) {
    if (hashes_[code] == hash && this->size(code) == size && std::memcmp(this->text(code), text, size) == 0) return code;
  }
  if (ends_.size() >= (size_t{1} << 31)) throw std::length_error("texts");
  if (2 * (ends_.size() + 1) > places_.size()) {
    grow();
    return add(text, size);
  }
  // all room first, so that nothing is half done where there is none
  if (hashes_.size() == hashes_.capacity()) hashes_.reserve(2 * hashes_.size());
  if (ends_.size() == ends_.capacity()) ends_.reserve(2 * ends_.size());
  bytes_.append(text, size);
  const auto code = static_cast<Code>(ends_.size());
  ends_.push_back(bytes_.size());
  hashes_.push_back(hash);
  places_[place] = code;
  return code;
}

void TextPool::grow() {
  std::vector<Code> places(2 * places_.size(), kNoText);
  for (Code code = 1; code < hashes_.size(); ++code) {
    size_t place = hashes_[code] & (places.size() - 1);
    while (places[place] != kNoText) place = (place + 1) & (places.size() - 1);
    places[place] = code;
  }
  places_.swap(places);
}

}  // namespace steplens
