#include "decoder.h"

namespace steplens {
namespace {

// HIP describes in its calls what they launch; so many calls of a piece are looked at.
constexpr size_t kFirstNames = 64;
constexpr char kHipPrefix[] = "hip";

}  // namespace

// What of a row depends on the others of its piece. Nothing is added to the tables yet.
bool Decoder::prepare_groups() {
  uint64_t begin = 0;
  for (Group& group : groups_) {
    group.begin = begin;
    begin += group.size;
  }
  order_.resize(records_.size());
  std::vector<uint64_t> next;
  for (const Group& group : groups_) next.push_back(group.begin);
  for (size_t row = 0; row < records_.size(); ++row) order_[next[records_[row].group]++] = static_cast<uint32_t>(row);
  const size_t operators = tables[kOperatorTable][0].rows;
  for (const Group& group : groups_) {
    for (uint64_t at = 0; at < group.size && group.table == kOperatorTable; ++at) {
      const Record& record = records_[order_[group.begin + at]];
      if (record.describes_collective) collectives.push_back({operators + at, record.args_begin, record.args_size});
    }
    if (group.table == kOperatorTable) prepare_operators(group);
    if (group.table == kCallTable) prepare_calls(group);
    if ((group.kind == kKernel || group.kind == kUnplaced) && !prepare_launches(group)) return false;
  }
  return true;
}

// Texts that some row of a piece has are empty in the rows that have none; where no row has any, they are null.
void Decoder::prepare_operators(const Group& group) {
  for (int text = 0; text < 3; ++text) {
    bool has_any = false;
    for (uint64_t at = 0; at < group.size && !has_any; ++at) has_any = records_[order_[group.begin + at]].texts[text] != kNoText;
    for (uint64_t at = 0; at < group.size && has_any; ++at) {
      Code& code = records_[order_[group.begin + at]].texts[text];
      if (code == kNoText) code = kEmptyText;
    }
  }
}

// The text of all arguments without the bracket that opens them.
Code Decoder::launch_from_all(const Record& record) {
  return record.args_size == 0 ? pool.add("ull", 3) : pool.add(piece_ + record.args_begin + 1, record.args_size - 1);
}

void Decoder::prepare_calls(const Group& group) {
  bool is_hip = false;
  for (uint64_t at = 0; at < group.size && at < kFirstNames; ++at) {
    const Code name = records_[order_[group.begin + at]].name;
    is_hip |= pool.size(name) >= 3 && std::memcmp(pool.text(name), kHipPrefix, 3) == 0;
  }
  for (uint64_t at = 0; at < group.size && is_hip; ++at) {
    Record& record = records_[order_[group.begin + at]];
    record.texts[0] = launch_from_all(record);
  }
}

// Of each task the text of its launch, or where not all tasks of a piece have a plain one, all of its arguments.
bool Decoder::prepare_launches(const Group& group) {
  bool all_plain = true, keep = false;
  const auto has = [this](const Record& record, const std::string& text) {
    return record.args_size != 0 && memmem(args_text(record), record.args_size, text.data(), text.size()) != nullptr;
  };
  for (uint64_t at = 0; at < group.size; ++at) {
    const Record& record = records_[order_[group.begin + at]];
    // the text of the mark where it is no member
    if (record.marks > 1 || (record.marks == 0 && has(record, launch_mark_))) return false;
    keep |= record.marks == 1;
    all_plain &= record.marks == 1 && launch_kinds_[record.texts[0]] == kOfManyTasks;
  }
  if (all_plain) return true;
  for (uint64_t at = 0; at < group.size && !keep; ++at) {
    for (const std::string& key : launch_keys_) keep |= has(records_[order_[group.begin + at]], key);
  }
  for (uint64_t at = 0; at < group.size; ++at) {
    Record& record = records_[order_[group.begin + at]];
    record.texts[0] = keep ? launch_from_all(record) : kEmptyText;
  }
  return true;
}

// What the rows of a group have, which saves looking at each of them for each column.
void Decoder::note_presence(Group& group) {
  const bool is_kernel = group.table == kTaskTable && group.kind != kCopy;
  Presence& presence = group.presence;
  for (uint64_t at = 0; at < group.size; ++at) {
    Record& record = records_[order_[group.begin + at]];
    // of a kernel the size of a copy means nothing
    if (is_kernel) record.nulls |= 1 << 5 | 1 << (kNumbers - 1);
    presence.some_null |= record.nulls;
    presence.all_null &= record.nulls;
    presence.has_name |= record.name != kNoText;
    presence.has_category |= record.category != kNoText;
    for (int text = 0; text < kTexts; ++text) presence.has_text[text] |= record.texts[text] != kNoText;
  }
}

void Decoder::commit() {
  size_t rows[kTableCount] = {}, bytes[kTableCount] = {};
  for (Group& group : groups_) {
    note_presence(group);
    rows[group.table] += group.size;
    if (group.table != kHalfTable) continue;
    for (uint64_t at = 0; at < group.size; ++at) bytes[group.table] += records_[order_[group.begin + at]].args_size + 4;
  }
  // all room first, so that a piece is there as a whole or not at all
  for (int table = 0; table < kTableCount; ++table) {
    if (rows[table] == 0) continue;
    for (Column& column : tables[static_cast<size_t>(table)]) {
      bool has_values = false, has_nulls = false;
      for (const Group& group : groups_) {
        has_values |= group.table == table && column.has_values(group.presence);
        has_nulls |= group.table == table && column.has_nulls(group.presence);
      }
      column.reserve(rows[table], has_values, has_nulls, bytes[table]);
    }
  }
  // Python makes a frame of the kernels of a piece before one of its copies
  for (const Group& group : groups_) {
    if (group.kind != kCopy) append_group(group);
  }
  for (const Group& group : groups_) {
    if (group.kind == kCopy) append_group(group);
  }
  discard();
}

void Decoder::append_group(const Group& group) {
  const uint32_t* rows = order_.data() + group.begin;
  for (Column& column : tables[group.table]) column.append(records_.data(), rows, group.size, group.presence, piece_);
}

}  // namespace steplens
