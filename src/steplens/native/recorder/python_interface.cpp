#include "python_interface.h"

#include <dlfcn.h>

#include <cstdlib>

namespace steplens {

namespace {

template <typename Function>
bool find(Function& function, const char* name) {
  function = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
  return function != nullptr;
}

}  // namespace

std::string PythonInterface::load() {
  if (version != 0) return {};
  const char* (*version_text)() = nullptr;
  std::string missing;
  const auto need = [&](auto& function, const char* name) {
    if (!find(function, name) && missing.empty()) missing = name;
  };
  need(version_text, "Py_GetVersion");
  need(set_profile, "PyEval_SetProfile");
  need(interpreter, "PyInterpreterState_Get");
  need(first_thread, "PyInterpreterState_ThreadHead");
  need(next_thread, "PyThreadState_Next");
  need(swap_thread, "PyThreadState_Swap");
  need(current_thread, "PyThreadState_Get");
  need(frame_of_thread, "PyThreadState_GetFrame");
  need(frame_code, "PyFrame_GetCode");
  need(frame_back, "PyFrame_GetBack");
  need(frame_line, "PyFrame_GetLineNumber");
  need(attribute, "PyObject_GetAttrString");
  need(item, "PyMapping_GetItemString");
  need(type_of, "PyObject_Type");
  need(repr, "PyObject_Repr");
  need(system_object, "PySys_GetObject");
  need(call, "PyObject_CallFunctionObjArgs");
  need(encode, "PyUnicode_AsEncodedString");
  need(bytes_text, "PyBytes_AsString");
  need(as_long, "PyLong_AsLong");
  need(clear_error, "PyErr_Clear");
  need(inc_ref, "Py_IncRef");
  need(dec_ref, "Py_DecRef");
  need(new_capsule, "PyCapsule_New");
  need(capsule_pointer, "PyCapsule_GetPointer");
  need(is_capsule, "PyCapsule_IsValid");
  need(none, "_Py_NoneStruct");
  need(take_lock, "PyGILState_Ensure");
  need(give_lock_back, "PyGILState_Release");
  need(release_lock, "PyEval_SaveThread");
  need(take_lock_again, "PyEval_RestoreThread");
  need(next_item, "PyDict_Next");
  need(find_item, "PyDict_GetItemWithError");
  need(as_unsigned, "PyLong_AsUnsignedLong");
  need(disable_collection, "PyGC_Disable");
  need(enable_collection, "PyGC_Enable");
  // public since 3.13
  if (!find(has_begun_to_end, "Py_IsFinalizing")) find(has_begun_to_end, "_Py_IsFinalizing");
  find(set_profile_of_all_threads, "PyEval_SetProfileAllThreads");
  find(frame_variable, "PyFrame_GetVarString");
  if (!missing.empty()) return missing;
  char* rest = nullptr;
  const unsigned long major = std::strtoul(version_text(), &rest, 10), minor = *rest == '.' ? std::strtoul(rest + 1, nullptr, 10) : 0;
  if (major * 256 + minor >= 0x030d && set_profile_of_all_threads == nullptr) return "PyEval_SetProfileAllThreads";
  version = major << 24 | minor << 16;
  if (version >= PYTHON_3_12 && version < PYTHON_3_14) {
    find(call_soon, "_PyEval_AddPendingCall");
  } else if (version < PYTHON_3_12 && find(switch_interval, "_PyEval_GetSwitchInterval")) {
    find(set_switch_interval, "_PyEval_SetSwitchInterval");
  }
  return {};
}

std::string PythonInterface::text_of(PyObject* string) const {
  // a name may hold half a character, which no UTF-8 has
  const OwnedObject bytes(*this, string == nullptr ? nullptr : encode(string, "utf-8", "backslashreplace"));
  const char* text = bytes.get() == nullptr ? nullptr : bytes_text(bytes.get());
  if (text == nullptr) {
    clear_error();
    return {};
  }
  return text;
}

std::string PythonInterface::text_attribute(PyObject* object, const char* name) const {
  const OwnedObject value(*this, attribute(object, name));
  if (value.get() == nullptr) clear_error();
  return text_of(value.get());
}

long PythonInterface::number_attribute(PyObject* object, const char* name) const {
  const OwnedObject value(*this, attribute(object, name));
  const long number = value.get() == nullptr ? -1 : as_long(value.get());
  if (number == -1) clear_error();
  return number;
}

}  // namespace steplens
