#include "arguments.h"

namespace steplens {

void MemberTable::add(const std::string& key, MemberType type, uint8_t place) {
  if (members_.size() >= kPlaces / 2) return;
  members_.push_back({key, type, place});
  size_t at = place_of(key.data(), key.size());
  while (places_[at] != 0) at = (at + 1) & (kPlaces - 1);
  places_[at] = static_cast<uint8_t>(members_.size());
}

size_t Recollection::place_of(const Byte* at, uint64_t context) {
  uint64_t words[2];
  std::memcpy(words, at, sizeof words);
  uint64_t hash = (words[0] ^ context) * 0x9e3779b97f4a7c15ULL;
  hash = (hash ^ hash >> 29 ^ words[1]) * 0xbf58476d1ce4e5b9ULL;
  return static_cast<size_t>(hash >> 40) & (kPlaces - 1);
}

bool Recollection::take_value(Scanner& scanner, uint64_t context, TextPool& pool, Code& code) {
  // only of a list or an object is it clear from its own text where it ends
  const bool is_closed = *scanner.at == '[' || *scanner.at == '{';
  const bool is_kept = is_closed && scanner.last - scanner.at >= 16;
  const size_t place = is_kept ? place_of(scanner.at, context) : 0;
  if (is_kept && taken_[place] != kNoText && matches(scanner, pool, taken_[place])) {
    code = taken_[place];
    scanner.at += pool.size(code);
    return true;
  }
  const Byte* begin = scanner.at;
  if (!scanner.skip_value()) return false;
  code = pool.add(reinterpret_cast<const char*>(begin), static_cast<size_t>(scanner.at - begin));
  if (is_kept) taken_[place] = code;
  return true;
}

bool Recollection::skip_value(Scanner& scanner, uint64_t context) {
  const bool is_closed = *scanner.at == '[' || *scanner.at == '{';
  if (!is_closed || scanner.last - scanner.at < 16) return scanner.skip_value();
  if (skipped_texts_.bytes().size() > kMostBytes) {
    skipped_texts_ = TextPool();
    skipped_.assign(kPlaces, kNoText);
  }
  Code& known = skipped_[place_of(scanner.at, context)];
  if (known != kNoText && matches(scanner, skipped_texts_, known)) {
    scanner.at += skipped_texts_.size(known);
    return true;
  }
  const Byte* begin = scanner.at;
  if (!scanner.skip_value()) return false;
  known = skipped_texts_.add(reinterpret_cast<const char*>(begin), static_cast<size_t>(scanner.at - begin));
  return true;
}

}  // namespace steplens
