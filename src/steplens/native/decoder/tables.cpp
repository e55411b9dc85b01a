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

void Column::reserve(size_t rows, size_t blob_bytes) {
  switch (type) {
    case kCodes:
      codes.reserve(codes.size() + rows);
      return;
    case kBooleans:
      bytes.reserve(bytes.size() + rows);
      return;
    case kBlobs:
      integers.reserve(integers.size() + rows);
      bytes.reserve(bytes.size() + blob_bytes);
      return;
    default:
      integers.reserve(integers.size() + rows);
      bytes.reserve(bytes.size() + rows);
  }
}

void Column::append_blob(const Record& record, const char* piece) {
  if (record.args_size == 0) {
    bytes.append("null", 4);
  } else {
    bytes.append(piece + record.args_begin, record.args_size);
  }
  integers.append(static_cast<int64_t>(bytes.size()));
}

void Column::append(const Record* records, const uint32_t* rows, size_t count, const char* piece) {
  const auto append_integers = [&](int null_bit, auto number_of) {
    for (size_t at = 0; at < count; ++at) {
      const Record& record = records[rows[at]];
      const bool is_null = (record.nulls >> null_bit & 1) != 0;
      integers.append(is_null ? 0 : number_of(record));
      bytes.append(static_cast<uint8_t>(is_null));
      null_count += is_null;
    }
  };
  const auto append_codes = [&](auto code_of) {
    for (size_t at = 0; at < count; ++at) {
      const Code code = code_of(records[rows[at]]);
      codes.append(code);
      null_count += code == kNoText;
    }
  };
  switch (source) {
    case kFromName:
      return append_codes([](const Record& record) { return record.name; });
    case kFromCategory:
      return append_codes([](const Record& record) { return record.category; });
    case kFromPid:
      return append_integers(kNullPid, [](const Record& record) { return record.pid; });
    case kFromTid:
      return append_integers(kNullTid, [](const Record& record) { return record.tid; });
    case kFromStart:
      return append_integers(kNullStart, [](const Record& record) { return record.start; });
    case kFromEnd:
      return append_integers(kNullEnd, [](const Record& record) { return record.end; });
    case kFromAnnotation:
      for (size_t at = 0; at < count; ++at) bytes.append(records[rows[at]].is_annotation);
      return;
    case kFromBegins:
      for (size_t at = 0; at < count; ++at) bytes.append(records[rows[at]].begins);
      return;
    case kFromArgs:
      for (size_t at = 0; at < count; ++at) append_blob(records[rows[at]], piece);
      return;
    default:
      if (type == kCodes) {
        return append_codes([text = source - kFromText](const Record& record) { return record.texts[text]; });
      }
      const int place = source == kFromReal ? kNumbers - 1 : source - kFromNumber;
      return append_integers(place, [place](const Record& record) { return record.numbers[place]; });
  }
}

void Column::clear() {
  integers.clear();
  codes.clear();
  bytes.clear();
  null_count = 0;
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
