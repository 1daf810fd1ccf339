// SPDX-License-Identifier: Apache-2.0
#include "audit/plugin_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <cstring>
#include <deque>
#include <exception>
#include <optional>
#include <utility>
#include <vector>

#include "audit/abi/attest/plugin.h"
#include "audit/output_capture.h"
#include "core/contract.h"
#include "core/file_io.h"
#include "core/fp_environment.h"
#include "core/json_reader.h"

namespace attest {
namespace {

using InfoFunction = const char*();
using RunFunction = int(const AttestCall*);

DLDataType TypeOf(DType dtype) {
  const auto bits = static_cast<std::uint8_t>(8 * SizeOf(dtype));
  switch (dtype) {
    case DType::kF64:
    case DType::kF32:
    case DType::kF16:
      return {ATTEST_FLOAT, bits, 1};
    case DType::kBF16:
      return {ATTEST_BFLOAT, bits, 1};
    case DType::kI32:
      return {ATTEST_INT, bits, 1};
    case DType::kBool:
      return {ATTEST_BOOL, bits, 1};
  }
  return {ATTEST_FLOAT, bits, 1};
}

// Tensors as the interface passes them. Shapes and strides are copies: a plug-in cannot reach ours.
class TensorList {
 public:
  void Add(const std::string& name, GuardedTensor& guarded) {
    names_.push_back(name);
    const Shape& shape = extents_.emplace_back(guarded.shape());
    const Shape& strides = extents_.emplace_back(guarded.strides());
    DLTensor tensor{};
    tensor.data = guarded.bytes();
    tensor.device.device_type = static_cast<decltype(tensor.device.device_type)>(1);
    tensor.ndim = static_cast<std::int32_t>(shape.size());
    tensor.dtype = TypeOf(guarded.dtype());
    tensor.shape = const_cast<std::int64_t*>(shape.data());
    tensor.strides = const_cast<std::int64_t*>(strides.data());
    tensors_.push_back({names_.back().c_str(), tensor});
  }
  const AttestTensor* data() const { return tensors_.data(); }
  std::int32_t size() const { return static_cast<std::int32_t>(tensors_.size()); }

 private:
  // Their elements stay where they are when others are added.
  std::deque<std::string> names_;
  std::deque<Shape> extents_;
  std::vector<AttestTensor> tensors_;
};

// One printable line of what a plug-in wrote into its message buffer.
std::string LineOf(std::string_view text) {
  while (text.ends_with('\n')) text.remove_suffix(1);
  return Printable(text);
}

// body(), with whatever it throws turned into a Status. A plug-in written in C++ may throw.
template <class Body>
Status CatchingAll(const Body& body) {
  try {
    return body();
  } catch (const std::exception& error) {
    return Internal(fmt::format("threw: {}", Printable(error.what())));
  } catch (...) {
    return Internal("threw something that is no std::exception");
  }
}

class LoadedPlugin : public PluginLibrary {
 public:
  LoadedPlugin(std::unique_ptr<OutputCapture> capture) : capture_(std::move(capture)) {}

  const SubjectInfo& info() const override { return info_; }
  const std::string& info_text() const override { return info_text_; }

  // Loads the library and reads its info; messages do not name the library.
  Status Open(const std::filesystem::path& library) {
    const FloatingPointState before = FloatingPointState::Current();
    const Status status = CatchingAll([&] { return OpenUnguarded(library); });
    Watch(before, "loading the library ", &load_complaints_);
    return status;
  }

 protected:
  Status Call(const Contract& contract, Buffers& inputs, Buffers& outputs,
              int threads) const override {
    TensorList input_list;
    for (auto& [name, tensor] : inputs) input_list.Add(name, tensor);
    TensorList output_list;
    for (auto& [name, tensor] : outputs) output_list.Add(name, tensor);
    const std::string contract_text = ContractToJson(contract);
    std::array<char, 1024> message{};

    AttestCall call{};
    call.version = ATTEST_PLUGIN_VERSION;
    call.contract = contract_text.c_str();
    call.num_inputs = input_list.size();
    call.inputs = input_list.data();
    call.num_outputs = output_list.size();
    call.outputs = output_list.data();
    call.threads = threads;
    call.message = message.data();
    call.message_size = message.size();

    complaints_.clear();
    const FloatingPointState before = FloatingPointState::Current();
    int result = ATTEST_ERROR;
    const Status thrown = CatchingAll([&] {
      result = run_(&call);
      return Status();
    });
    Watch(before, "", &complaints_);
    if (!thrown.ok()) return thrown;
    const std::string line =
        LineOf(std::string_view(message.data(), ::strnlen(message.data(), message.size())));
    switch (result) {
      case ATTEST_OK:
        // Not with a call whose complaints nobody hears of.
        complaints_.insert(complaints_.end(), load_complaints_.begin(), load_complaints_.end());
        load_complaints_.clear();
        return Status();
      case ATTEST_UNSUPPORTED:
        return Unsupported(line.empty() ? "the plug-in does not support the case" : line);
      case ATTEST_ERROR:
        return Internal(line.empty() ? "the plug-in failed and gave no message" : line);
      default:
        return Internal(fmt::format("attest_plugin_run returned {}, 0 to 2 was expected{}{}",
                                    result, line.empty() ? "" : ": ", line));
    }
  }

  std::vector<Complaint> TakeComplaints() const override { return std::exchange(complaints_, {}); }

 private:
  Status OpenUnguarded(const std::filesystem::path& library) {
    // Never closed: threads of the library may run for as long as the process does.
    void* const handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
      std::string reason = Printable(::dlerror());
      const std::string prefix = Printable(library.native()) + ": ";
      if (reason.starts_with(prefix)) reason.erase(0, prefix.size());
      return InvalidArgument("cannot be loaded: " + reason);
    }
    run_ = reinterpret_cast<RunFunction*>(::dlsym(handle, "attest_plugin_run"));
    if (run_ == nullptr) return InvalidArgument("has no function attest_plugin_run");
    info_.name = library.stem().string();
    info_.description = "plug-in " + library.string();
    info_.strided = true;
    info_.threaded = true;
    auto* const info = reinterpret_cast<InfoFunction*>(::dlsym(handle, "attest_plugin_info"));
    const char* const text = info == nullptr ? nullptr : info();
    if (text == nullptr) return Status();
    info_text_ = text;
    return ReadInfo();
  }

  // Only what says how to call the plug-in; audit/capabilities.h reads the rest.
  Status ReadInfo() {
    const StatusOr<nlohmann::json> info = ParseStrictJson(info_text_);
    if (!info.ok()) return InvalidArgument("attest_plugin_info: " + info.status().message());
    if (!info->is_object()) {
      return InvalidArgument(
          fmt::format("attest_plugin_info: expected an object, found {}", info->type_name()));
    }
    const auto abi = info->find("abi");
    if (abi != info->end() && *abi != ATTEST_PLUGIN_VERSION) {
      return InvalidArgument(
          fmt::format("attest_plugin_info: abi: version {} of the interface was expected, found {}",
                      ATTEST_PLUGIN_VERSION, Printable(abi->dump())));
    }
    for (const auto& [field, value] :
         {std::pair("name", &info_.name), std::pair("version", &info_.version)}) {
      const auto found = info->find(field);
      if (found != info->end() && found->is_string()) *value = found->get<std::string>();
    }
    return Status();
  }

  // Adds what foreign code did since `before`, and undoes what can be undone.
  void Watch(const FloatingPointState& before, std::string_view who,
             std::vector<Complaint>* complaints) const {
    const std::string changes = FloatingPointState::Current().ChangesSince(before);
    before.Restore();
    if (!changes.empty()) {
      complaints->push_back(
          {"fp-state", fmt::format("{}left the floating-point state changed: {}", who, changes)});
    }
    const std::string written = capture_->Take();
    if (!written.empty()) complaints->push_back({"printed", fmt::format("{}{}", who, written)});
  }

  std::unique_ptr<OutputCapture> capture_;
  RunFunction* run_ = nullptr;
  SubjectInfo info_;
  std::string info_text_;
  mutable std::vector<Complaint> load_complaints_;  // until the first call that succeeds
  mutable std::vector<Complaint> complaints_;       // of the last call
};

}  // namespace

StatusOr<std::unique_ptr<PluginLibrary>> PluginLibrary::Load(const std::filesystem::path& library) {
  const std::string name = Printable(library.native());
  std::error_code error;
  // A name without a directory would be searched for among the system's libraries.
  const std::filesystem::path path = std::filesystem::absolute(library, error);
  if (error || !std::filesystem::exists(path, error)) return NotFound(name + ": no such file");
  StatusOr<std::unique_ptr<OutputCapture>> capture = OutputCapture::Start();
  if (!capture.ok()) return capture.status();
  auto plugin = std::make_unique<LoadedPlugin>(*std::move(capture));
  if (const Status status = plugin->Open(path); !status.ok()) {
    return Status(status.code(), fmt::format("{}: {}", name, status.message()));
  }
  return std::unique_ptr<PluginLibrary>(std::move(plugin));
}

}  // namespace attest
