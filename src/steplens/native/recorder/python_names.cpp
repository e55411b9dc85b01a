#include <cstring>

#include "python_calls.h"

namespace steplens {

namespace {

// kinds of what has an address
enum Kind : uint64_t { CODE = 1, LINE, MODULE, FUNCTION, FIRST_LINE };

// of the numbers that are known of codes: calls of modules, and functions that go on at another line than they begin at
constexpr uint32_t OF_MODULES = 1u << 31, AT_LINES = 1u << 30;

// co_flags of generators, coroutines, and generators of coroutines
constexpr long RESUMED = 0x20 | 0x80 | 0x200;

// A program that makes functions or classes without end keeps no more of them alive than this.
constexpr size_t MOST_HELD = 1 << 16;

SignatureKey key_of(const void* address, uint64_t second, Kind kind) {
  SignatureHasher hasher;
  hasher.add(reinterpret_cast<uint64_t>(address), second);
  hasher.add(kind);
  return hasher.key();
}

SignatureKey key_of_text(const std::string& text) {
  SignatureHasher hasher;
  hasher.add_text(text.data(), text.size());
  return hasher.key();
}

// PyMethodDef, and the head of PyCFunctionObject: they are of Python's stable interface, without which there is no way to what
// all bound methods of one name have in common.
struct MethodDefinition {
  const char* name;
};
struct BuiltinFunction {
  void* head[2];
  const MethodDefinition* definition;
};

}  // namespace

void PythonNames::begin_session(const char* prefixes, PyObject* module_call) {
  known_.clear();
  table_.begin_session();
  classes_.clear();
  prefixes_.clear();
  for (const char* end; *prefixes != 0; prefixes = *end == 0 ? end : end + 1) {
    end = std::strchr(prefixes, '\n');
    if (end == nullptr) end = prefixes + std::strlen(prefixes);
    if (end != prefixes) prefixes_.emplace_back(prefixes, end);
  }
  module_call_ = module_call;
}

void PythonNames::end_session() {
  known_.clear();
  // what goes may run code of the program, which may come here
  std::unordered_set<PyObject*> held;
  held.swap(held_);
  for (PyObject* object : held) python_.dec_ref(object);
}

bool PythonNames::hold(PyObject* object) {
  if (held_.count(object) != 0) return true;
  if (held_.size() >= MOST_HELD) return false;
  held_.insert(object);
  python_.inc_ref(object);
  return true;
}

uint32_t PythonNames::number_of_frame(PyObject* frame) {
  const OwnedObject code(python_, python_.frame_code(frame));
  const SignatureKey key = key_of(code.get(), 0, CODE);
  uint32_t number = known_.find(key);
  if (number == UINT32_MAX) number = look_at_code(code.get(), frame, key);
  if (number == OF_MODULES) return number_of_module(code.get(), frame);
  if (number == AT_LINES) return number_of_line(code.get(), frame);
  return number;
}

uint32_t PythonNames::number_of_open_frame(PyObject* frame) {
  const OwnedObject code(python_, python_.frame_code(frame));
  return code.get() == module_call_ ? number_of_module(code.get(), frame) : number_of_line(code.get(), frame);
}

uint32_t PythonNames::number_of_running_frame(PyObject* frame) {
  const OwnedObject code(python_, python_.frame_code(frame));
  if (code.get() == module_call_) return number_of_module(code.get(), frame);
  const SignatureKey key = key_of(code.get(), 0, FIRST_LINE);
  uint32_t number = known_.find(key);
  if (number != UINT32_MAX) return number;
  const std::string text = frame_text(code.get(), static_cast<int>(python_.number_attribute(code.get(), "co_firstlineno")));
  number = table_.number_of(key_of_text(text), [&] { return text; });
  if (hold(code.get())) known_.insert(key, number);
  return number;
}

uint32_t PythonNames::look_at_code(PyObject* code, PyObject* frame, SignatureKey key) {
  const bool is_of_modules = code == module_call_;
  if (is_of_modules || (python_.number_attribute(code, "co_flags") & RESUMED) != 0) {
    if (hold(code)) known_.insert(key, is_of_modules ? OF_MODULES : AT_LINES);
    return is_of_modules ? OF_MODULES : AT_LINES;
  }
  const uint32_t number = number_of_line(code, frame);
  if (hold(code)) known_.insert(key, number);
  return number;
}

uint32_t PythonNames::number_of_line(PyObject* code, PyObject* frame) {
  const int line = python_.frame_line(frame);
  const SignatureKey key = key_of(code, static_cast<uint64_t>(line), LINE);
  uint32_t number = known_.find(key);
  if (number != UINT32_MAX) return number;
  const std::string text = frame_text(code, line);
  number = table_.number_of(key_of_text(text), [&] { return text; });
  if (hold(code)) known_.insert(key, number);
  return number;
}

std::string PythonNames::frame_text(PyObject* code, int line) const {
  std::string file = python_.text_attribute(code, "co_filename");
  for (const std::string& prefix : prefixes_) {
    if (file.compare(0, prefix.size(), prefix) == 0) {
      file.erase(0, prefix.size());
      break;
    }
  }
  std::string text = "{\"file\":";
  append_quoted(text, file);
  text += ",\"line\":" + std::to_string(line) + ",\"function\":";
  append_quoted(text, python_.text_attribute(code, "co_name"));
  return text + '}';
}

uint32_t PythonNames::number_of_module(PyObject* code, PyObject* frame) {
  const OwnedObject locals(python_, python_.frame_variable != nullptr ? nullptr : python_.attribute(frame, "f_locals"));
  const OwnedObject self(
      python_,
      python_.frame_variable != nullptr ? python_.frame_variable(frame, "self")
      : locals.get() != nullptr         ? python_.item(locals.get(), "self")
                                        : nullptr);
  if (self.get() == nullptr) {
    python_.clear_error();
    return number_of_line(code, frame);
  }
  const OwnedObject type(python_, python_.type_of(self.get()));
  const SignatureKey key = key_of(self.get(), reinterpret_cast<uint64_t>(type.get()), MODULE);
  uint32_t number = known_.find(key);
  if (number != UINT32_MAX) return number;
  // The module itself may go: another one at its place passes for it, as it does with Kineto. It would hold its parameters.
  hold(type.get());
  const uint32_t type_number = classes_.emplace(type.get(), static_cast<uint32_t>(classes_.size())).first->second;
  std::string text = "{\"module\":";
  append_quoted(text, python_.text_attribute(type.get(), "__name__"));
  text += ",\"class\":" + std::to_string(type_number) + ",\"object\":" + std::to_string(reinterpret_cast<uint64_t>(self.get())) + '}';
  number = table_.number_of(key_of_text(text), [&] { return text; });
  known_.insert(key, number);
  return number;
}

uint32_t PythonNames::number_of_function(PyObject* function) {
  // not the function itself: that of a method is made for each call
  const MethodDefinition* definition = reinterpret_cast<const BuiltinFunction*>(function)->definition;
  const SignatureKey key = key_of(definition, reinterpret_cast<uint64_t>(definition->name), FUNCTION);
  uint32_t number = known_.find(key);
  if (number != UINT32_MAX) return number;
  const OwnedObject shown(python_, python_.repr(function));
  if (shown.get() == nullptr) python_.clear_error();
  std::string text = "{\"builtin\":";
  append_quoted(text, shown.get() == nullptr ? "<built-in function>" : python_.text_of(shown.get()));
  text += '}';
  number = table_.number_of(key_of_text(text), [&] { return text; });
  known_.insert(key, number);
  return number;
}

}  // namespace steplens
