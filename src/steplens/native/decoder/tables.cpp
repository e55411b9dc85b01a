#include "tables.h"

namespace steplens {
namespace {

ColumnType type_of(Source source) {
  if (source == kFromName || source == kFromCategory || (source >= kFromText && source < kFromNowhere)) return kCodes;
  if (source == kFromAnnotation || source == kFromBegins) return kBooleans;
  if (source == kFromArgs) return kBlobs;
  return source == kFromReal ? kReals : kIntegers;
}

Source number(int place) { return static_cast<Source>(kFromNumber + place); }
Source text(int place) { return static_cast<Source>(kFromText + place); }

}  // namespace

Column::Column(Source from) : source(from), type(type_of(from)) {}

int Column::null_bit() const {
  switch (source) {
    case kFromPid:
      return kNullPid;
    case kFromTid:
      return kNullTid;
    case kFromStart:
      return kNullStart;
    case kFromEnd:
      return kNullEnd;
    case kFromReal:
      return kNumbers - 1;
    default:
      return source - kFromNumber;
  }
}

bool Column::has_values(const Presence& presence) const {
  if (source == kFromName) return presence.has_name;
  if (source == kFromCategory) return presence.has_category;
  if (type == kCodes) return presence.has_text[source - kFromText];
  if (type == kBooleans || type == kBlobs) return true;
  return (presence.all_null >> null_bit() & 1) == 0;
}

bool Column::has_nulls(const Presence& presence) const {
  return (type == kIntegers || type == kReals) && (presence.some_null >> null_bit() & 1) != 0;
}

void Column::reserve(size_t more, bool has_values, bool has_nulls, size_t blob_bytes) {
  if (!has_values && !keeps_values()) return;
  switch (type) {
    case kCodes:
      codes.reserve(rows + more);
      return;
    case kBooleans:
      bytes.reserve(rows + more);
      return;
    case kBlobs:
      integers.reserve(rows + more);
      bytes.reserve(bytes.size() + blob_bytes);
      return;
    default:
      integers.reserve(rows + more);
      if (has_nulls || null_count != 0) bytes.reserve(rows + more);
  }
}

template <typename Getter>
void Column::append_integers(const Record* records, const uint32_t* numbers, size_t count, const Presence& presence,
                             Getter number_of) {
  const int bit = null_bit();
  if (!has_values(presence)) {
    if (keeps_values()) {
      integers.fill(0, count);
      bytes.fill(0, rows - bytes.size());
      bytes.fill(1, count);
    }
    null_count += count;
    rows += count;
    return;
  }
  if (!keeps_values()) {
    integers.fill(0, rows);
    bytes.fill(1, rows);
  }
  if (!has_nulls(presence)) {
    for (size_t at = 0; at < count; ++at) integers.append(number_of(records[numbers[at]]));
    if (null_count != 0) bytes.fill(0, count);
    rows += count;
    return;
  }
  bytes.fill(0, rows - bytes.size());
  for (size_t at = 0; at < count; ++at) {
    const Record& record = records[numbers[at]];
    const bool is_null = (record.nulls >> bit & 1) != 0;
    integers.append(is_null ? 0 : number_of(record));
    bytes.append(static_cast<uint8_t>(is_null));
    null_count += is_null;
  }
  rows += count;
}

template <typename Getter>
void Column::append_codes(const Record* records, const uint32_t* numbers, size_t count, const Presence& presence,
                          Getter code_of) {
  if (!has_values(presence)) {
    if (keeps_values()) codes.fill(kNoText, count);
    null_count += count;
    rows += count;
    return;
  }
  if (!keeps_values()) codes.fill(kNoText, rows);
  for (size_t at = 0; at < count; ++at) {
    const Code code = code_of(records[numbers[at]]);
    codes.append(code);
    null_count += code == kNoText;
  }
  rows += count;
}

void Column::append_blob(const Record& record, const char* piece) {
  if (record.args_size == 0) {
    bytes.append("null", 4);
  } else {
    bytes.append(piece + record.args_begin, record.args_size);
  }
  integers.append(static_cast<int64_t>(bytes.size()));
}

void Column::append(const Record* records, const uint32_t* numbers, size_t count, const Presence& presence, const char* piece) {
  const auto integers_of = [&](auto number_of) { append_integers(records, numbers, count, presence, number_of); };
  const auto codes_of = [&](auto code_of) { append_codes(records, numbers, count, presence, code_of); };
  switch (source) {
    case kFromName:
      return codes_of([](const Record& record) { return record.name; });
    case kFromCategory:
      return codes_of([](const Record& record) { return record.category; });
    case kFromPid:
      return integers_of([](const Record& record) { return record.pid; });
    case kFromTid:
      return integers_of([](const Record& record) { return record.tid; });
    case kFromStart:
      return integers_of([](const Record& record) { return record.start; });
    case kFromEnd:
      return integers_of([](const Record& record) { return record.end; });
    case kFromAnnotation:
      for (size_t at = 0; at < count; ++at) bytes.append(records[numbers[at]].is_annotation);
      rows += count;
      return;
    case kFromBegins:
      for (size_t at = 0; at < count; ++at) bytes.append(records[numbers[at]].begins);
      rows += count;
      return;
    case kFromArgs:
      for (size_t at = 0; at < count; ++at) append_blob(records[numbers[at]], piece);
      rows += count;
      return;
    default:
      if (type == kCodes) return codes_of([text = source - kFromText](const Record& record) { return record.texts[text]; });
      return integers_of([place = null_bit()](const Record& record) { return record.numbers[place]; });
  }
}

void Column::clear() {
  integers.clear();
  codes.clear();
  bytes.clear();
  rows = null_count = 0;
}

std::vector<std::vector<Column>> make_tables() {
  const Source name = kFromName, category = kFromCategory, pid = kFromPid, tid = kFromTid, start = kFromStart, end = kFromEnd;
  const std::vector<Source> sources[kTableCount] = {
      {name, pid, tid, kFromAnnotation, number(0), number(1), number(2), text(0), text(1), text(2), text(3), number(3), start, end},
      {name, pid, tid, category, number(0), number(1), number(2), number(3), number(4), text(0), number(5), kFromReal, start, end},
      {name, pid, tid, category, number(0), number(1), text(0), start, end},
      {name, pid, tid, category, number(0), number(1), start, end},
      {name, pid, tid, number(0), number(1), number(2), start, end},
      {name, pid, tid, category, number(0), number(1), number(2), number(3), number(4), text(0), start, end},
      {pid, tid, number(0), number(1), number(2), number(3), number(4), number(5), start},
      {category, number(0), pid, tid, start},
      {category, number(0), pid, tid, start},
      {kFromBegins, name, category, pid, tid, start, kFromArgs},
  };
  std::vector<std::vector<Column>> tables(kTableCount);
  for (int table = 0; table < kTableCount; ++table) {
    // columns cannot be copied, so that there is room for all of them at once
    tables[table].reserve(sources[table].size());
    for (const Source source : sources[table]) tables[table].emplace_back(source);
  }
  return tables;
}

}  // namespace steplens
