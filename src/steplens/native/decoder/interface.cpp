// The C interface that native_decoder.py calls. No exception passes it; a decoder is used by one thread at a time.
#include <new>

#include "decoder.h"

#define STEPLENS_EXPORT extern "C" __attribute__((visibility("default")))

using steplens::Code;
using steplens::Decoder;

namespace {

enum Setting : int32_t {
  kLaunchMark,
  kTaskKey,
  kLaunchKey,
  kKeptName,
  kUnusedPhases,
};

// As in native_decoder.py.
struct PieceCounts {
  uint64_t events, skipped, metadata, collectives, new_categories;
  int32_t has_coarse_times;
};

struct ColumnView {
  int32_t type;
  uint64_t rows, null_count, byte_count;
  const void* numbers;
  const void* bytes;
};

struct TextView {
  uint64_t count;
  const char* bytes;
  const uint64_t* ends;
};

}  // namespace

// Of the interface; another number is another library.
STEPLENS_EXPORT int32_t steplens_decoder_version() { return 2; }

STEPLENS_EXPORT Decoder* steplens_decoder_new() {
  try {
    return new Decoder();
  } catch (...) {
    return nullptr;
  }
}

STEPLENS_EXPORT void steplens_decoder_free(Decoder* decoder) { delete decoder; }

STEPLENS_EXPORT int32_t steplens_decoder_set(Decoder* decoder, int32_t setting, const char* text, uint64_t size) {
  try {
    const std::string given(text, size);
    switch (setting) {
      case kLaunchMark:
        decoder->set_launch_mark(given);
        return 1;
      case kTaskKey:
        decoder->add_task_key(given);
        return 1;
      case kLaunchKey:
        decoder->add_launch_key(given);
        return 1;
      case kKeptName:
        decoder->keep_arguments_of(given);
        return 1;
      case kUnusedPhases:
        decoder->set_unused_phases(given);
        return 1;
      default:
        return 0;
    }
  } catch (...) {
    return 0;
  }
}

STEPLENS_EXPORT int32_t steplens_decoder_add_member(Decoder* decoder, int32_t set, const char* key, uint64_t size, int32_t type,
                                                    int32_t place) {
  if (set < 0 || set >= steplens::kSetCount || type < 0 || type > steplens::kMarkMember || place < 0) return 0;
  const bool is_text = type >= steplens::kTextMember;
  if (place >= (is_text ? steplens::kTexts : steplens::kNumbers)) return 0;
  try {
    decoder->members(static_cast<steplens::ArgumentSet>(set))
        .add(std::string(key, size), static_cast<steplens::MemberType>(type), static_cast<uint8_t>(place));
    return 1;
  } catch (...) {
    return 0;
  }
}

// The number of a text; 0 where there is no memory.
STEPLENS_EXPORT Code steplens_decoder_intern(Decoder* decoder, const char* text, uint64_t size) {
  try {
    return decoder->pool.add(text, size);
  } catch (...) {
    return 0;
  }
}

STEPLENS_EXPORT int32_t steplens_decoder_set_category(Decoder* decoder, Code category, int32_t kind) {
  if (kind < 0 || kind >= steplens::kKindCount || category >= decoder->pool.count()) return 0;
  try {
    decoder->set_category(category, static_cast<steplens::CategoryKind>(kind));
    return 1;
  } catch (...) {
    return 0;
  }
}

STEPLENS_EXPORT int32_t steplens_decoder_decode(Decoder* decoder, const char* piece, uint64_t size, int32_t times_are_text,
                                                PieceCounts* counts) {
  steplens::Outcome outcome;
  try {
    outcome = decoder->decode(piece, size, times_are_text != 0);
  } catch (...) {
    outcome = steplens::kForPython;
  }
  *counts = {decoder->events,
             decoder->skipped,
             decoder->metadata.size(),
             decoder->collectives.size(),
             decoder->new_categories.size(),
             decoder->has_coarse_times ? 1 : 0};
  if (outcome == steplens::kForPython) decoder->discard();
  return outcome;
}

STEPLENS_EXPORT const steplens::Span* steplens_decoder_metadata(Decoder* decoder) { return decoder->metadata.data(); }
STEPLENS_EXPORT const steplens::Span* steplens_decoder_collectives(Decoder* decoder) { return decoder->collectives.data(); }
STEPLENS_EXPORT const Code* steplens_decoder_new_categories(Decoder* decoder) { return decoder->new_categories.data(); }

// Adds the rows of the last piece to the tables; 0 where there is no memory, and then none of them is added.
STEPLENS_EXPORT int32_t steplens_decoder_commit(Decoder* decoder) {
  try {
    decoder->commit();
    return 1;
  } catch (...) {
    decoder->discard();
    return 0;
  }
}

STEPLENS_EXPORT int32_t steplens_decoder_column(Decoder* decoder, int32_t table, int32_t index, ColumnView* view) {
  if (table < 0 || table >= steplens::kTableCount) return 0;
  const auto& columns = decoder->tables[static_cast<size_t>(table)];
  if (index < 0 || static_cast<size_t>(index) >= columns.size()) return 0;
  const steplens::Column& column = columns[static_cast<size_t>(index)];
  const bool has_codes = column.type == steplens::kCodes;
  view->type = column.type;
  view->rows = column.rows;
  view->null_count = column.null_count;
  view->byte_count = column.bytes.size();
  view->numbers = has_codes ? static_cast<const void*>(column.codes.numbers()) : column.integers.numbers();
  view->bytes = column.bytes.numbers();
  return 1;
}

// Forgets the rows of a column; until all columns of its table are forgotten no piece is decoded.
STEPLENS_EXPORT void steplens_decoder_clear(Decoder* decoder, int32_t table, int32_t index) {
  if (table < 0 || table >= steplens::kTableCount) return;
  auto& columns = decoder->tables[static_cast<size_t>(table)];
  if (index >= 0 && static_cast<size_t>(index) < columns.size()) columns[static_cast<size_t>(index)].clear();
}

// The texts by number; valid until the next piece.
STEPLENS_EXPORT void steplens_decoder_texts(Decoder* decoder, TextView* view) {
  *view = {decoder->pool.count(), decoder->pool.bytes().data(), decoder->pool.ends().data()};
}
