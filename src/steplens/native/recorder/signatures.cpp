#include "signatures.h"

#include <c10/core/TensorImpl.h>
#include <torch/csrc/profiler/util.h>

#include <cstring>

namespace steplens {

namespace {

// as PyTorch: of longer lists the values are not kept
constexpr size_t MOST_LIST_VALUES = 30;

// markers of kinds of inputs, none of which is a number of dimensions
enum Kind : uint64_t { UNDEFINED = 0xf100, TENSOR, TENSORS, SCALAR, SCALARS, OTHER, END_OF_LIST };

bool has_sizes(const at::Tensor& tensor) {
  return tensor.defined() && !tensor.is_nested() && !tensor.unsafeGetTensorImpl()->has_symbolic_sizes_strides();
}

void add_tensor(SignatureHasher& hasher, const at::Tensor& tensor) {
  if (!has_sizes(tensor)) {
    hasher.add(UNDEFINED);
    return;
  }
  const c10::IntArrayRef sizes = tensor.sizes();
  hasher.add(TENSOR | static_cast<uint64_t>(tensor.scalar_type()) << 16 | static_cast<uint64_t>(sizes.size()) << 32);
  size_t place = 0;
  for (; place + 1 < sizes.size(); place += 2) hasher.add(static_cast<uint64_t>(sizes[place]), static_cast<uint64_t>(sizes[place + 1]));
  if (place < sizes.size()) hasher.add(static_cast<uint64_t>(sizes[place]));
}

uint64_t bits_of(double value) {
  uint64_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

void add_scalar(SignatureHasher& hasher, const c10::IValue& value) {
  if (value.isInt()) {
    hasher.add(1);
    hasher.add(static_cast<uint64_t>(value.toInt()));
  } else if (value.isBool()) {
    hasher.add(value.toBool() ? 2 : 3);
  } else if (value.isDouble()) {
    hasher.add(4);
    hasher.add(bits_of(value.toDouble()));
  }
}

// Whether it is a list whose values PyTorch keeps.
bool is_scalar_list(const c10::IValue& value) {
  if (!value.isList()) return false;
  const auto values = value.toListRef();
  return values.empty() || (values[0].isScalar() && values.size() <= MOST_LIST_VALUES);
}

void append_sizes(std::string& text, const at::Tensor& tensor) {
  text += '[';
  if (has_sizes(tensor)) {
    bool first = true;
    for (const int64_t size : tensor.sizes()) {
      if (!first) text += ',';
      text += std::to_string(size);
      first = false;
    }
  }
  text += ']';
}

std::string_view type_name(const at::Tensor& tensor) {
  // before 2.6 PyTorch has a class of its own for it
  const auto name = c10::scalarTypeToTypeMeta(tensor.scalar_type()).name();
  return std::string_view(name.data(), name.size());
}

void append_inputs(std::string& text, const at::RecordFunction& function, bool with_arguments) {
  std::string shapes, types;
  std::vector<c10::IValue> values;
  for (const c10::IValue& value : function.inputs()) {
    shapes += shapes.empty() ? "" : ",";
    types += types.empty() ? "" : ",";
    c10::IValue argument;
    if (value.isTensor()) {
      const at::Tensor& tensor = value.toTensor();
      append_sizes(shapes, tensor);
      append_quoted(types, has_sizes(tensor) ? type_name(tensor) : std::string_view());
    } else if (value.isTensorList()) {
      shapes += '[';
      bool first = true;
      for (const c10::IValue& tensor : value.toListRef()) {
        shapes += first ? "" : ",";
        append_sizes(shapes, tensor.toTensor());
        first = false;
      }
      shapes += ']';
      append_quoted(types, "TensorList");
    } else if (value.isScalar()) {
      shapes += "[]";
      append_quoted(types, "Scalar");
      argument = value;
    } else if (is_scalar_list(value)) {
      shapes += "[]";
      append_quoted(types, "ScalarList");
      argument = value;
    } else {
      shapes += "[]";
      append_quoted(types, std::string_view());
    }
    values.push_back(std::move(argument));
  }
  if (values.empty()) return;
  text += ",\"shapes\":[" + shapes + "],\"types\":[" + types + "]";
  if (with_arguments) {
    // the very text of PyTorch's own trace, which is JSON
    text += ",\"arguments\":" + torch::profiler::impl::ivalueListToStr(values);
  }
}

}  // namespace

void append_quoted(std::string& text, std::string_view words) {
  static constexpr char DIGITS[] = "0123456789abcdef";
  text += '"';
  for (const char letter : words) {
    const unsigned char byte = static_cast<unsigned char>(letter);
    if (letter == '"' || letter == '\\') {
      text += '\\';
      text += letter;
    } else if (byte < 0x20) {
      text += "\\u00";
      text += DIGITS[byte >> 4];
      text += DIGITS[byte & 15];
    } else {
      text += letter;
    }
  }
  text += '"';
}

void SignatureTable::begin_session() {
  const std::lock_guard<std::mutex> lock(mutex_);
  numbers_.clear();
  new_texts_.clear();
  new_count_ = next_ = 0;
}

void SignatureTable::append(const std::string& text) {
  const uint32_t length = static_cast<uint32_t>(text.size());
  new_texts_.append(reinterpret_cast<const char*>(&length), sizeof(length));
  new_texts_ += text;
  new_count_++;
}

uint32_t SignatureTable::take_texts(std::string& texts) {
  texts.clear();
  const std::lock_guard<std::mutex> lock(mutex_);
  texts.swap(new_texts_);
  const uint32_t count = new_count_;
  new_count_ = 0;
  return count;
}

void SignatureTable::after_fork() {
  // the lock may be held by a thread that is not there any more
  new (&mutex_) std::mutex;
}

void KnownSignatures::insert(SignatureKey key, uint32_t number) {
  if ((count_ + 1) * 2 > places_.size()) {
    std::vector<Entry> before = std::move(places_);
    // a thread that sees more than fit begins again: the table of all has the numbers still
    const bool is_full = before.size() >= MOST_PLACES;
    places_ = std::vector<Entry>(before.empty() || is_full ? FIRST_PLACES : before.size() * 2);
    mask_ = places_.size() - 1;
    count_ = 0;
    if (!is_full) {
      for (const Entry& entry : before) {
        if (entry.key != 0) insert(entry.key, entry.number);
      }
    }
  }
  for (size_t place = key >> 8;; place++) {
    Entry& entry = places_[place & mask_];
    if (entry.key == 0) {
      entry.key = key;
      entry.number = number;
      count_++;
      return;
    }
  }
}

void KnownSignatures::clear() {
  places_.clear();
  mask_ = count_ = 0;
}

void add_inputs(SignatureHasher& hasher, const at::RecordFunction& function, bool with_arguments) {
  for (const c10::IValue& value : function.inputs()) {
    if (value.isTensor()) {
      add_tensor(hasher, value.toTensor());
    } else if (value.isTensorList()) {
      hasher.add(TENSORS);
      for (const c10::IValue& tensor : value.toListRef()) add_tensor(hasher, tensor.toTensor());
      hasher.add(END_OF_LIST);
    } else if (value.isScalar()) {
      hasher.add(SCALAR);
      if (with_arguments) add_scalar(hasher, value);
    } else if (is_scalar_list(value)) {
      hasher.add(SCALARS);
      if (with_arguments) {
        for (const c10::IValue& each : value.toListRef()) add_scalar(hasher, each);
        hasher.add(END_OF_LIST);
      }
    } else {
      hasher.add(OTHER);
    }
  }
}

bool keeps_arguments(const char* name) {
  // as the reader: what a convolution does depends on them, and who a message goes to
  return std::strstr(name, "conv") != nullptr || std::strncmp(name, "c10d::", 6) == 0;
}

std::string signature_text(const at::RecordFunction& function, bool with_inputs, bool with_arguments, bool with_flops) {
  std::string text = "{\"name\":";
  append_quoted(text, function.name());
  if (with_inputs) append_inputs(text, function, with_arguments);
  if (with_flops) {
    const auto arguments = torch::profiler::impl::saveExtraArgs(function);
    const uint64_t flops = torch::profiler::impl::computeFlops(function.name(), arguments);
    if (flops != 0) text += ",\"flops\":" + std::to_string(flops);
  }
  if (function.isNcclMeta()) {
    text += ",\"collective\":{";
    bool first = true;
    for (const auto& [key, value] : torch::profiler::impl::saveNcclMeta(function)) {
      if (!first) text += ',';
      append_quoted(text, key);
      // the value is JSON already
      text += ':' + value;
      first = false;
    }
    text += '}';
  }
  return text + '}';
}

}  // namespace steplens
