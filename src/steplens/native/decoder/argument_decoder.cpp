#include "decoder.h"

namespace steplens {
namespace {

const Byte* find_text(const Byte* begin, const Byte* end, const std::string& text) {
  return static_cast<const Byte*>(memmem(begin, static_cast<size_t>(end - begin), text.data(), text.size()));
}

ArgumentSet set_of(Byte phase, CategoryKind kind) {
  if (phase == 'i') return kMemoryArguments;
  switch (kind) {
    case kOperator:
    case kAnnotation:
      return kOperatorArguments;
    case kCall:
    case kDeviceRange:
      return kCallArguments;
    case kPython:
      return kPythonArguments;
    default:
      return kTaskArguments;
  }
}

}  // namespace

// Reads `event_.args`, whose begin is known; its end may be.
bool Decoder::decode_arguments() {
  const Scanner behind = scanner_;
  const bool was_skipped = event_.args_end != nullptr;
  scanner_.at = event_.args;
  event_.args_are_read = true;
  const ArgumentSet set = set_of(event_.phase, event_.kind);
  if (!scanner_.take_null() && !decode_members(members_[set])) return false;
  event_.args_end = scanner_.at;
  event_.record.args_begin = static_cast<uint32_t>(event_.args - reinterpret_cast<const Byte*>(piece_));
  event_.record.args_size = static_cast<uint32_t>(event_.args_end - event_.args);
  if (was_skipped) scanner_ = behind;
  return true;
}

bool Decoder::decode_members(const MemberTable& members) {
  if (!scanner_.take('{')) return false;
  scanner_.skip_space();
  if (scanner_.take('}')) return true;
  const bool may_launch = &members == &members_[kTaskArguments] && event_.kind != kCopy;
  const Byte* launch = nullptr;
  uint32_t seen = 0, seen_before = 0;
  for (;;) {
    const Byte* begin = scanner_.at;
    TextSpan key;
    if (!scanner_.take_string(key.begin, key.end, key.has_escapes)) return false;
    const char* text = reinterpret_cast<const char*>(key.begin);
    auto size = static_cast<size_t>(key.end - key.begin);
    if (key.has_escapes) {
      resolve_escapes(key.begin, key.end, scratch_);
      text = scratch_.data();
      size = scratch_.size();
    } else if (may_launch && size + 2 == launch_mark_.size() && std::memcmp(begin, launch_mark_.data(), size + 2) == 0) {
      // twice is more than Kineto writes, and which one counts is Python's to say
      if (launch != nullptr) return false;
      if (take_known_launch(begin)) return true;
      launch = begin;
      seen_before = seen;
    }
    const int index = members.find(text, size);
    scanner_.skip_space();
    if (!scanner_.take(':')) return false;
    scanner_.skip_space();
    if (index < 0) {
      if (!recollection_.skip_value(scanner_, (static_cast<uint64_t>(event_.record.name) << 8) + size)) return false;
    } else {
      if ((seen >> index & 1) != 0) return false;
      seen |= uint32_t{1} << index;
      if (!decode_argument(members[index])) return false;
    }
    scanner_.skip_space();
    if (scanner_.take('}')) break;
    if (!scanner_.take(',')) return false;
    scanner_.skip_space();
  }
  if (launch != nullptr) learn_launch(event_.args, launch, seen != seen_before);
  return true;
}

bool Decoder::decode_argument(const Member& member) {
  Record& record = event_.record;
  const auto set_number = [&record, &member](int64_t number) {
    record.numbers[member.place] = number;
    record.nulls &= static_cast<uint16_t>(~(1U << member.place));
  };
  switch (member.type) {
    case kIntegerMember: {
      int64_t number;
      if (scanner_.take_null()) return true;
      if (!take_integer(scanner_, number)) return false;
      set_number(number);
      return true;
    }
    case kTruncatedMember:
    case kRealMember: {
      Number number;
      if (scanner_.take_null()) return true;
      if (!take_real(scanner_, number)) return false;
      if (member.type == kRealMember) {
        int64_t bits;
        std::memcpy(&bits, &number.real, sizeof bits);
        set_number(bits);
        return true;
      }
      // what has no 64 bits is null in Python, after a while
      if (!number.is_integer && !(number.real > -9e18 && number.real < 9e18)) return false;
      set_number(number.is_integer ? number.integer : static_cast<int64_t>(number.real));
      return true;
    }
    case kTextMember:
    case kMarkMember: {
      TextSpan text;
      if (scanner_.take_null()) return true;
      if (!scanner_.take_string(text.begin, text.end, text.has_escapes)) return false;
      if (member.type == kMarkMember) {
        record.describes_collective = true;
      } else {
        record.texts[member.place] = intern(text);
      }
      return true;
    }
    case kWantedRawMember:
      if (!has_kept_arguments(record.name)) {
        return recollection_.skip_value(scanner_, (static_cast<uint64_t>(record.name) << 8) + 128 + member.place);
      }
      [[fallthrough]];
    default:
      return recollection_.take_value(scanner_, (static_cast<uint64_t>(record.name) << 8) + member.place, pool,
                                      record.texts[member.place]);
  }
}

bool Decoder::has_kept_arguments(Code name) {
  if (name_kinds_.size() <= name) name_kinds_.resize(pool.count(), 0);
  uint8_t& kind = name_kinds_[name];
  if (kind == 0) {
    const std::string text(pool.text(name), pool.size(name));
    kind = 1;
    for (const std::string& part : kept_names_) {
      if (text.find(part) != std::string::npos) kind = 2;
    }
  }
  return kind == 2;
}

// Whether the launch that begins here is the one that a task of this name had before. Then it is passed, with the bracket
// behind it: the same text is the same members, and none of them becomes a column.
bool Decoder::take_known_launch(const Byte* begin) {
  Record& record = event_.record;
  if (record.name >= launch_of_name_.size()) return false;
  const Code launch = launch_of_name_[record.name];
  if (launch == kNoText) return false;
  const size_t size = pool.size(launch);
  if (static_cast<size_t>(scanner_.last - begin) < size || std::memcmp(begin, pool.text(launch), size) != 0) return false;
  record.texts[0] = launch;
  record.marks = find_text(event_.args, begin, launch_mark_) == nullptr ? 1 : 2;
  scanner_.at = begin + size;
  return true;
}

// Notes the launch that the arguments end with.
void Decoder::learn_launch(const Byte* args, const Byte* begin, bool has_members) {
  Record& record = event_.record;
  const Byte* end = scanner_.at;
  const bool is_alone = find_text(args, begin, launch_mark_) == nullptr &&
                        find_text(begin + 1, end, launch_mark_) == nullptr;
  record.marks = is_alone ? 1 : 2;
  record.texts[0] = pool.add(reinterpret_cast<const char*>(begin), static_cast<size_t>(end - begin));
  if (launch_kinds_.size() <= record.texts[0]) launch_kinds_.resize(pool.count(), kNotLookedAt);
  uint8_t& kind = launch_kinds_[record.texts[0]];
  if (kind == kNotLookedAt) {
    kind = kOfManyTasks;
    for (const std::string& key : task_keys_) {
      if (find_text(begin, end, key) != nullptr) kind = kOfOneTask;
    }
  }
  if (kind != kOfManyTasks || has_members || find_text(begin + 1, end, launch_mark_) != nullptr) return;
  if (launch_of_name_.size() <= record.name) launch_of_name_.resize(pool.count(), kNoText);
  launch_of_name_[record.name] = record.texts[0];
}

}  // namespace steplens
