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

// Members of an event.
enum Field { kPhase, kName, kCategory, kPid, kTid, kTime, kDuration, kArguments, kId };

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
  };

  // Of an event (event_decoder.cpp).
  bool decode_events();
  bool decode_event();
  bool decode_member(const Byte* key, size_t size);
  bool take_lane(int field, int null_bit, int64_t& number);
  bool take_time_member(int field, int null_bit, int64_t& ns);
  bool take_text_member(int field, TextSpan& text);
  bool finish_event(const Byte* begin);
  bool finish_call();
  void find_kind();
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
