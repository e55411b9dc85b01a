#include <algorithm>

#include "decoder.h"

namespace steplens {
namespace {

// So many calls tell how the times of a piece are written, as in kineto_events.py.
constexpr int kFirstCalls = 256;
constexpr uint16_t kAllNull = 0xffff;

constexpr uint16_t bit(int field) { return static_cast<uint16_t>(1 << field); }

bool is_key(const Byte* key, size_t size, const char* wanted) { return std::memcmp(key, wanted, size) == 0; }

// Which field a key names.
int field_of(const Byte* key, size_t size) {
  switch (size) {
    case 2:
      if (is_key(key, 2, "ph")) return kPhase;
      if (is_key(key, 2, "ts")) return kTime;
      return is_key(key, 2, "id") ? kId : kOther;
    case 3:
      if (is_key(key, 3, "cat")) return kCategory;
      if (is_key(key, 3, "pid")) return kPid;
      if (is_key(key, 3, "tid")) return kTid;
      return is_key(key, 3, "dur") ? kDuration : kOther;
    case 4:
      if (is_key(key, 4, "name")) return kName;
      return is_key(key, 4, "args") ? kArguments : kOther;
    default:
      return kOther;
  }
}

bool is_call(Byte phase) { return phase == 'X' || phase == 'B' || phase == 'E'; }

}  // namespace

Decoder::Decoder() = default;

void Decoder::set_category(Code category, CategoryKind kind) {
  if (kind_of_category_.size() <= category) kind_of_category_.resize(std::max<size_t>(pool.count(), category + 1), kUnknown);
  kind_of_category_[category] = kind;
}

Outcome Decoder::decode(const char* piece, size_t size, bool times_are_text) {
  discard();
  const auto* text = reinterpret_cast<const Byte*>(piece);
  // offsets of 32 bits are enough for any piece that is one
  if (size < 2 || size > (size_t{1} << 31) || text[0] != '[' || text[size - 1] != ']' || !is_utf8(text, size)) return kForPython;
  piece_ = piece;
  scanner_ = {text + 1, text + size - 1};
  times_are_text_ = times_are_text;
  if (!decode_events()) return kForPython;
  if (!new_categories.empty()) return kNewCategories;
  return prepare_groups() ? kDecoded : kForPython;
}

void Decoder::discard() {
  events = skipped = 0;
  has_coarse_times = false;
  first_calls_ = 0;
  metadata.clear();
  collectives.clear();
  new_categories.clear();
  records_.clear();
  groups_.clear();
  group_of_key_.clear();
  last_key_ = UINT64_MAX;
}

bool Decoder::decode_events() {
  scanner_.skip_space();
  if (scanner_.at == scanner_.last) return true;
  for (;;) {
    if (!decode_event()) return false;
    ++events;
    scanner_.skip_space();
    if (scanner_.at == scanner_.last) return true;
    if (!scanner_.take(',')) return false;
    scanner_.skip_space();
  }
}

bool Decoder::decode_event() {
  Event& event = event_;
  event = Event{};
  event.record.nulls = kAllNull;
  event.kind = kUnknown;
  const Byte* begin = scanner_.at;
  for (int field = kEventBegins;;) {
    // calls have other members than the rest
    Passage& known = passages_[event.phase == 'X'][field];
    if (known.is_next(scanner_)) {
      scanner_.at += known.size;
      field = known.field;
    } else {
      const Byte* from = scanner_.at;
      if (!pass_to_member(field)) return false;
      known.learn(from, scanner_.at, field);
    }
    if (field == kEventEnds) return finish_event(begin);
    if (!decode_member(field)) return false;
  }
}

// From behind the value of a field, or from the begin of an event, to the next value, whose field is left in `field`, or behind
// the event.
bool Decoder::pass_to_member(int& field) {
  if (field == kEventBegins) {
    if (!scanner_.take('{')) return false;
  } else {
    scanner_.skip_space();
    if (scanner_.take('}')) {
      field = kEventEnds;
      return true;
    }
    if (!scanner_.take(',')) return false;
  }
  scanner_.skip_space();
  TextSpan key;
  if (!scanner_.take_string(key.begin, key.end, key.has_escapes)) return false;
  scanner_.skip_space();
  if (!scanner_.take(':')) return false;
  scanner_.skip_space();
  if (key.has_escapes) {
    resolve_escapes(key.begin, key.end, scratch_);
    field = field_of(reinterpret_cast<const Byte*>(scratch_.data()), scratch_.size());
  } else {
    field = field_of(key.begin, static_cast<size_t>(key.end - key.begin));
  }
  return true;
}

bool Decoder::decode_member(int field) {
  Event& event = event_;
  if (field == kOther) return recollection_.skip_value(scanner_, 0);
  // of a member that is there twice Python knows which one counts
  if ((event.seen & bit(field)) != 0) return false;
  event.seen |= bit(field);
  Record& record = event.record;
  switch (field) {
    case kPhase: {
      TextSpan phase;
      if (!scanner_.take_string(phase.begin, phase.end, phase.has_escapes) || phase.end - phase.begin != 1) return false;
      event.phase = *phase.begin;
      return true;
    }
    case kName:
      return take_text_member(field, event.name);
    case kCategory:
      return take_text_member(field, event.category);
    case kPid:
      return take_lane(field, kNullPid, record.pid);
    case kTid:
      return take_lane(field, kNullTid, record.tid);
    case kId:
      return take_lane(field, kNullId, event.id);
    case kTime:
      return take_time_member(field, kNullStart, record.start);
    case kDuration:
      return take_time_member(field, kNullEnd, event.duration);
    default: {
      event.args = scanner_.at;
      // whose they are is known where phase, category and name stand before them, as Kineto writes them
      const uint16_t before = bit(kPhase) | bit(kCategory) | bit(kName);
      if (event.phase == 'X' && (event.seen & before) == before && event.odd == 0) {
        find_kind();
        if (event.kind < kKindCount && event.kind != kIgnored) return decode_arguments();
      } else if (event.phase == 'i') {
        return decode_arguments();
      }
      if (!scanner_.skip_value()) return false;
      event.args_end = scanner_.at;
      return true;
    }
  }
}

bool Decoder::take_lane(int field, int null_bit, int64_t& number) {
  if (*scanner_.at == '"') {
    event_.text_numbers |= bit(field);
  } else if (scanner_.take_null()) {
    return true;
  } else if (take_integer(scanner_, number)) {
    event_.record.nulls &= static_cast<uint16_t>(~(1U << null_bit));
    return true;
  } else {
    event_.odd |= bit(field);
  }
  return scanner_.skip_value();
}

bool Decoder::take_time_member(int field, int null_bit, int64_t& ns) {
  if (*scanner_.at != '-' && (*scanner_.at < '0' || *scanner_.at > '9')) {
    event_.odd |= bit(field);
    return scanner_.skip_value();
  }
  Time time;
  if (!take_time(scanner_, times_are_text_, time)) return false;
  ns = time.ns;
  event_.record.nulls &= static_cast<uint16_t>(~(1U << null_bit));
  if (field == kTime) event_.is_coarse = time.is_coarse;
  return true;
}

bool Decoder::take_text_member(int field, TextSpan& text) {
  if (*scanner_.at == '"') return scanner_.take_string(text.begin, text.end, text.has_escapes);
  event_.odd |= bit(field);
  return scanner_.skip_value();
}

Code Decoder::intern(const TextSpan& text) {
  if (text.begin == text.end) return kEmptyText;
  if (!text.has_escapes) {
    return pool.add(reinterpret_cast<const char*>(text.begin), static_cast<size_t>(text.end - text.begin));
  }
  resolve_escapes(text.begin, text.end, scratch_);
  return pool.add(scratch_.data(), scratch_.size());
}

// Mostly it is that of the event before.
Code Decoder::intern_category() {
  const TextSpan& text = event_.category;
  const auto size = static_cast<size_t>(text.end - text.begin);
  if (!text.has_escapes && size != 0 && size == pool.size(last_category_) &&
      std::memcmp(text.begin, pool.text(last_category_), size) == 0) {
    return last_category_;
  }
  return last_category_ = intern(text);
}

// The kind of a call, from its category; kUnknown where Python has to be asked. Name and category become numbers.
void Decoder::find_kind() {
  Record& record = event_.record;
  if (record.category != kNoText) return;
  record.category = intern_category();
  record.name = intern(event_.name);
  event_.kind = record.category < kind_of_category_.size() ? static_cast<CategoryKind>(kind_of_category_[record.category])
                                                           : kUnknown;
}

bool Decoder::finish_event(const Byte* begin) {
  Event& event = event_;
  if ((event.seen & bit(kPhase)) == 0) return false;
  const uint16_t odd = event.odd;
  Record& record = event.record;
  constexpr uint16_t kOfAll = bit(kPid) | bit(kTid) | bit(kTime);
  if (is_call(event.phase)) return finish_call();
  switch (event.phase) {
    case 'i':
      if ((odd & (kOfAll | bit(kName))) != 0 || (event.args != nullptr && !event.args_are_read && !decode_arguments())) return false;
      // the number of bytes is what makes it one of an allocator
      if ((record.nulls & 1 << 1) != 0) return true;
      if (event.text_numbers & (bit(kPid) | bit(kTid))) return false;
      add_record(kMemoryTable, kIgnored, kNoText);
      return true;
    case 's':
    case 'f':
      if ((odd & (kOfAll | bit(kCategory) | bit(kId))) != 0 || event.text_numbers != 0) return false;
      record.category = intern(event.category);
      record.numbers[0] = event.id;
      record.nulls = static_cast<uint16_t>((record.nulls & ~1U) | ((record.nulls >> kNullId & 1U) != 0 ? 1U : 0U));
      add_record(event.phase == 's' ? kFlowStartTable : kFlowEndTable, kIgnored, record.category);
      return true;
    case 'M':
      metadata.push_back({0, static_cast<uint32_t>(begin - reinterpret_cast<const Byte*>(piece_)),
                          static_cast<uint32_t>(scanner_.at - begin)});
      return true;
    default:
      // a phase outside the format is a damaged event
      if (unused_phases_.find(static_cast<char>(event.phase)) == std::string::npos) return false;
      ++skipped;
      return true;
  }
}

bool Decoder::finish_call() {
  Event& event = event_;
  Record& record = event.record;
  if ((event.odd & ~bit(kId)) != 0) return false;
  if (first_calls_ < kFirstCalls) {
    ++first_calls_;
    has_coarse_times |= event.is_coarse;
  }
  find_kind();
  const bool has_text_lanes = (event.text_numbers & (bit(kPid) | bit(kTid))) != 0;
  if (event.phase != 'X') {
    if (has_text_lanes) return false;
    if (event.args != nullptr) {
      record.args_begin = static_cast<uint32_t>(event.args - reinterpret_cast<const Byte*>(piece_));
      record.args_size = static_cast<uint32_t>(event.args_end - event.args);
    }
    record.begins = event.phase == 'B';
    add_record(kHalfTable, kIgnored, kNoText);
    return true;
  }
  if (event.kind == kIgnored) return true;
  if (event.kind == kUnknown) {
    if (new_categories.empty() || new_categories.back() != record.category) new_categories.push_back(record.category);
    return true;
  }
  if (has_text_lanes) return false;
  if (event.args != nullptr && !event.args_are_read && !decode_arguments()) return false;
  constexpr uint16_t kTimes = 1 << kNullStart | 1 << kNullEnd;
  if ((record.nulls & kTimes) != 0 || event.duration == kBeyond) {
    record.nulls |= 1 << kNullEnd;
  } else if (record.start == kBeyond) {
    record.end = kBeyond;
  } else {
    record.end = record.start + event.duration;
    if (record.end >= kLastNs || record.end <= -kLastNs) record.nulls |= 1 << kNullEnd;
  }
  record.is_annotation = event.kind == kAnnotation;
  static const Table kTables[] = {kOperatorTable, kOperatorTable,    kTaskTable,   kTaskTable,
                                  kCallTable,     kDeviceRangeTable, kPythonTable, kUnplacedTable};
  const bool is_one_sequence = event.kind <= kCopy;
  add_record(kTables[event.kind], event.kind == kAnnotation ? kOperator : event.kind, is_one_sequence ? kNoText : record.category);
  return true;
}

// Rows of a table lie together by kind and category, in the order in which these come first, as Python makes its frames.
void Decoder::add_record(Table table, CategoryKind kind, Code category) {
  const uint64_t key = static_cast<uint64_t>(table) << 48 | static_cast<uint64_t>(kind) << 40 | category;
  if (key != last_key_) {
    const auto found = group_of_key_.emplace(key, static_cast<uint32_t>(groups_.size()));
    if (found.second) groups_.push_back({table, kind, 0, 0, {}});
    last_key_ = key;
    last_group_ = found.first->second;
  }
  event_.record.group = last_group_;
  ++groups_[last_group_].size;
  records_.push_back(event_.record);
}

}  // namespace steplens
