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

void Column::append_integer(int64_t number, bool is_null) {
  integers.append(is_null ? 0 : number);
  bytes.append(static_cast<uint8_t>(is_null));
  null_count += is_null;
}

void Column::append(const Record& record, const char* piece) {
  const auto is_null = [&record](int bit) { return (record.nulls >> bit & 1) != 0; };
  switch (source) {
    case kFromName:
      return codes.append(record.name);
    case kFromCategory:
      return codes.append(record.category);
    case kFromPid:
      return append_integer(record.pid, is_null(kNullPid));
    case kFromTid:
      return append_integer(record.tid, is_null(kNullTid));
    case kFromStart:
      return append_integer(record.start, is_null(kNullStart));
    case kFromEnd:
      return append_integer(record.end, is_null(kNullEnd));
    case kFromAnnotation:
      return bytes.append(record.is_annotation);
    case kFromBegins:
      return bytes.append(record.begins);
    case kFromArgs:
      bytes.append(record.args_size == 0 ? "null" : piece + record.args_begin, record.args_size == 0 ? 4 : record.args_size);
      return integers.append(static_cast<int64_t>(bytes.size()));
    case kFromReal:
      return append_integer(record.numbers[kNumbers - 1], is_null(kNumbers - 1));
    default:
      if (type == kCodes) {
        const Code code = record.texts[source - kFromText];
        null_count += code == kNoText;
        return codes.append(code);
      }
      return append_integer(record.numbers[source - kFromNumber], is_null(source - kFromNumber));
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
