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

constexpr unsigned long PYTHON_3_12 = 0x030c0000, PYTHON_3_13 = 0x030d0000, PYTHON_3_14 = 0x030e0000;

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
  // of threads of our own, and of what is looked at from them
  int (*take_lock)() = nullptr;
  void (*give_lock_back)(int) = nullptr;
  PyThreadState* (*release_lock)() = nullptr;
  void (*take_lock_again)(PyThreadState*) = nullptr;
  // How a thread that computes in Python is made to come by soon, which its versions do each in its own way; null where they do not:
  // since 3.12 the thread that has the lock calls a function between two instructions, before that it lets go of the lock after
  // a time (us) that can be made short.
  int (*call_soon)(PyInterpreterState*, int (*)(void*), void*, int only_main_thread) = nullptr;
  void (*set_switch_interval)(unsigned long) = nullptr;
  unsigned long (*switch_interval)() = nullptr;
  int (*next_item)(PyObject* dictionary, ptrdiff_t* place, PyObject** key, PyObject** value) = nullptr;
  PyObject* (*find_item)(PyObject* dictionary, PyObject* key) = nullptr;  // borrowed
  unsigned long (*as_unsigned)(PyObject*) = nullptr;
  int (*disable_collection)() = nullptr;  // 1: it was enabled
  int (*enable_collection)() = nullptr;
  int (*has_begun_to_end)() = nullptr;

  // Looks everything up, once. The name of what is missing; empty where all is there.
  std::string load();

  // Whether Python ends, and with it threads that ask for its lock.
  bool is_finalizing() const { return has_begun_to_end != nullptr && has_begun_to_end() != 0; }

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
