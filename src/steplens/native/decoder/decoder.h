// Events of Kineto's JSON to columns, a piece of the file at a time.
//
// A piece is read here as a whole or not at all: what the struct types of kineto_structs.py do not take as it is, or what only
// Python knows how to treat (text for numbers, invalid UTF-8, members twice ...), makes the piece one for Python.
#pragma once

#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "arguments.h"
#include "json_scanner.h"
#include "numbers.h"
#include "tables.h"
#include "text_pool.h"

namespace steplens {

enum Outcome : int32_t { kDecoded = 0, kForPython = 1, kNewCategories = 2 };

// A stretch of a piece, and for the arguments of communication the row of their call in the operators.
struct Span {
  uint64_t row;
  uint32_t begin, size;
};

// Of the text of a launch: whether nothing in it is of one task alone.
enum LaunchKind : uint8_t { kNotLookedAt, kOfManyTasks, kOfOneTask };

// A string of a piece.
struct TextSpan {
  const Byte *begin, *end;
  bool has_escapes;
};

// Members of an event, any other one, and where an event begins and ends.
enum Field { kPhase, kName, kCategory, kPid, kTid, kTime, kDuration, kArguments, kId, kOther, kEventBegins, kEventEnds, kFieldCount };

// The text between one value of an event and the next: the same in nearly every event, so that comparing it is enough.
struct Passage {
  static constexpr size_t kMostBytes = 32;
  Byte text[kMostBytes] = {};
  uint8_t size = 0;
  // of the next value
  uint8_t field = 0;

  bool is_next(const Scanner& scanner) const {
    if (size == 0 || static_cast<size_t>(scanner.last - scanner.at) < kMostBytes) return false;
#ifdef __SSE2__
    const auto equal_bits = [this, &scanner](int at) {
      const __m128i left = _mm_loadu_si128(reinterpret_cast<const __m128i*>(scanner.at + at));
      return static_cast<uint32_t>(
          _mm_movemask_epi8(_mm_cmpeq_epi8(left, _mm_loadu_si128(reinterpret_cast<const __m128i*>(text + at)))));
    };
    // a bit for each byte that differs, the first one lowest
    return (~(equal_bits(0) | equal_bits(16) << 16) & (0xffffffffU >> (kMostBytes - size))) == 0;
#else
    return std::memcmp(scanner.at, text, size) == 0;
#endif
  }
  void learn(const Byte* begin, const Byte* end, int next) {
    if (static_cast<size_t>(end - begin) > kMostBytes) return;
    size = static_cast<uint8_t>(end - begin);
    field = static_cast<uint8_t>(next);
    std::memcpy(text, begin, size);
  }
};

// An event while it is read.
struct Event {
  Record record;
  TextSpan name, category;
  int64_t duration, id;
  // where its arguments begin and end; null where there are none, or none yet
  const Byte *args, *args_end;
  // bits of fields: those that were there; that have another type than numbers or texts; that have text for a number
  uint16_t seen, odd, text_numbers;
  Byte phase;
  bool is_coarse, args_are_read;
  CategoryKind kind;
};

class Decoder {
 public:
  Decoder();

  MemberTable& members(ArgumentSet set) { return members_[set]; }
  // Calls with this text in their names keep their arguments.
  void keep_arguments_of(const std::string& text) { kept_names_.push_back(text); }
  // Begins, in the arguments of a task, what depends on nothing but how it is launched.
  void set_launch_mark(const std::string& text) { launch_mark_ = text; }
  // Of one task: they are not part of a launch. Of a launch: they tell what is launched where the mark is missing.
  void add_task_key(const std::string& text) { task_keys_.push_back(text); }
  void add_launch_key(const std::string& text) { launch_keys_.push_back(text); }
  // Phases of events that are nothing for a profile.
  void set_unused_phases(const std::string& phases) { unused_phases_ = phases; }
  void set_category(Code category, CategoryKind kind);

  // Reads a piece; its rows are there once it is committed.
  Outcome decode(const char* piece, size_t size, bool times_are_text);
  void commit();
  void discard();

  TextPool pool;
  std::vector<std::vector<Column>> tables = make_tables();
  // of the last piece
  uint64_t events = 0, skipped = 0;
  bool has_coarse_times = false;
  std::vector<Span> metadata, collectives;
  std::vector<Code> new_categories;

 private:
  struct Group {
    Table table;
    CategoryKind kind;
    uint64_t size, begin;
    Presence presence;
  };

  // Of an event (event_decoder.cpp).
  bool decode_events();
  bool decode_event();
  bool pass_to_member(int& field);
  bool decode_member(int field);
  bool take_lane(int field, int null_bit, int64_t& number);
  bool take_time_member(int field, int null_bit, int64_t& ns);
  bool take_text_member(int field, TextSpan& text);
  bool finish_event(const Byte* begin);
  bool finish_call();
  void find_kind();
  Code intern_category();
  Code intern(const TextSpan& text);
  void add_record(Table table, CategoryKind kind, Code category);

  // Of its arguments (argument_decoder.cpp).
  bool decode_arguments();
  bool decode_members(const MemberTable& members);
  bool decode_argument(const Member& member);
  bool take_known_launch(const Byte* begin);
  void learn_launch(const Byte* args, const Byte* begin, bool has_members);
  bool has_kept_arguments(Code name);

  // Of the rows of a piece (row_groups.cpp).
  bool prepare_groups();
  bool prepare_launches(const Group& group);
  void prepare_operators(const Group& group);
  void prepare_calls(const Group& group);
  void note_presence(Group& group);
  void append_group(const Group& group);
  Code launch_from_all(const Record& record);

  const char* args_text(const Record& record) const { return piece_ + record.args_begin; }

  MemberTable members_[kSetCount];
  std::vector<std::string> kept_names_, task_keys_, launch_keys_;
  std::string launch_mark_, unused_phases_;
  std::vector<uint8_t> kind_of_category_;
  // by code: of names 0 where nobody looked, 1 where arguments are not kept, 2 where they are; of launches their `LaunchKind`
  std::vector<uint8_t> name_kinds_, launch_kinds_;
  std::vector<Code> launch_of_name_;
  Recollection recollection_;
  std::string scratch_;
  Code last_category_ = kEmptyText;
  // behind each field of calls and of other events
  Passage passages_[2][kFieldCount];

  const char* piece_ = nullptr;
  Scanner scanner_{};
  Event event_{};
  bool times_are_text_ = false;
  int first_calls_ = 0;
  std::vector<Record> records_;
  std::vector<Group> groups_;
  std::unordered_map<uint64_t, uint32_t> group_of_key_;
  uint64_t last_key_ = 0;
  uint32_t last_group_ = 0;
  std::vector<uint32_t> order_;
};

}  // namespace steplens
