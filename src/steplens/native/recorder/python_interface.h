// What is called of CPython, looked up in the running process: the library depends on no version of Python, and loads without one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace steplens {

struct PyObject;
struct PyThreadState;
struct PyInterpreterState;

using ProfileFunction = int (*)(PyObject* object, PyObject* frame, int what, PyObject* argument);

// `what` of a profile function
enum PythonEvent : int { PYTHON_CALL = 0, PYTHON_RETURN = 3, FUNCTION_CALL = 4, FUNCTION_EXCEPTION = 5, FUNCTION_RETURN = 6 };

constexpr unsigned long PYTHON_3_13 = 0x030d0000;

struct PythonInterface {
  // 0 where it could not be told
  unsigned long version = 0;

  void (*set_profile)(ProfileFunction, PyObject*) = nullptr;
  // since 3.12
  void (*set_profile_of_all_threads)(ProfileFunction, PyObject*) = nullptr;
  PyInterpreterState* (*interpreter)() = nullptr;
  PyThreadState* (*first_thread)(PyInterpreterState*) = nullptr;
  PyThreadState* (*next_thread)(PyThreadState*) = nullptr;
  PyThreadState* (*swap_thread)(PyThreadState*) = nullptr;
  PyThreadState* (*current_thread)() = nullptr;
  PyObject* (*frame_of_thread)(PyThreadState*) = nullptr;
  PyObject* (*frame_code)(PyObject*) = nullptr;
  PyObject* (*frame_back)(PyObject*) = nullptr;
  int (*frame_line)(PyObject*) = nullptr;
  // since 3.12; the locals of a frame are made for it before
  PyObject* (*frame_variable)(PyObject*, const char*) = nullptr;
  PyObject* (*attribute)(PyObject*, const char*) = nullptr;
  PyObject* (*item)(PyObject*, const char*) = nullptr;
  PyObject* (*type_of)(PyObject*) = nullptr;
  PyObject* (*repr)(PyObject*) = nullptr;
  PyObject* (*system_object)(const char*) = nullptr;
  PyObject* (*call)(PyObject*, ...) = nullptr;
  PyObject* (*encode)(PyObject*, const char*, const char*) = nullptr;
  const char* (*bytes_text)(PyObject*) = nullptr;
  long (*as_long)(PyObject*) = nullptr;
  void (*clear_error)() = nullptr;
  void (*inc_ref)(PyObject*) = nullptr;
  void (*dec_ref)(PyObject*) = nullptr;
  PyObject* (*new_capsule)(void*, const char*, void (*)(PyObject*)) = nullptr;
  void* (*capsule_pointer)(PyObject*, const char*) = nullptr;
  int (*is_capsule)(PyObject*, const char*) = nullptr;
  PyObject* none = nullptr;

  // Looks everything up, once. The name of what is missing; empty where all is there.
  std::string load();

  // The text of a str, whatever is in it; empty on failure.
  std::string text_of(PyObject* string) const;
  // Of an attribute that is a str, or a number.
  std::string text_attribute(PyObject* object, const char* name) const;
  long number_attribute(PyObject* object, const char* name) const;
};

// Gives a reference back.
class OwnedObject {
 public:
  OwnedObject(const PythonInterface& python, PyObject* object) : python_(python), object_(object) {}
  ~OwnedObject() {
    if (object_ != nullptr) python_.dec_ref(object_);
  }
  OwnedObject(const OwnedObject&) = delete;
  OwnedObject& operator=(const OwnedObject&) = delete;
  PyObject* get() const { return object_; }

 private:
  const PythonInterface& python_;
  PyObject* object_;
};

}  // namespace steplens
