// SPDX-License-Identifier: Apache-2.0
// ONNX Runtime through its C interface, loaded while the program runs: sessions of one-node models.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "audit/peers/onnx_model.h"
#include "core/status.h"

namespace attest {

// Where the library lies below node_modules (FindPeerFile).
inline constexpr char kOnnxRuntimeFile[] =
    "onnxruntime-node/bin/napi-v6/linux/x64/libonnxruntime.so.1";

// The library with one environment, until the process ends. Objects of ONNX Runtime are only ever
// handled by pointer.
class OnnxRuntime {
 public:
  // Places of the functions used here in the table OrtApi, to which later versions only append.
  enum class Function : std::size_t {
    kGetErrorMessage = 2,
    kCreateEnv = 3,
    kCreateSessionFromArray = 8,
    kRun = 9,
    kCreateSessionOptions = 10,
    kSetGraphOptimizationLevel = 23,
    kSetIntraOpNumThreads = 24,
    kSetInterOpNumThreads = 25,
    kCreateTensorWithData = 49,
    kCreateCpuMemoryInfo = 69,
    kReleaseEnv = 92,
    kReleaseStatus = 93,
    kReleaseMemoryInfo = 94,
    kReleaseSession = 95,
    kReleaseValue = 96,
    kReleaseSessionOptions = 100,
  };

  // NotFound says what is missing.
  static StatusOr<std::shared_ptr<OnnxRuntime>> Load();
  OnnxRuntime(const OnnxRuntime&) = delete;
  OnnxRuntime& operator=(const OnnxRuntime&) = delete;
  ~OnnxRuntime();

  // Functions that return a status; the types of the arguments must be exactly the declared ones.
  // Unsupported, with the library's message, where it refuses.
  template <class... Arguments>
  Status Call(Function function, Arguments... arguments) const {
    using Pointer = void* (*)(Arguments...);
    return Checked(Get<Pointer>(function)(arguments...));
  }
  void Release(Function function, void* object) const { Get<void (*)(void*)>(function)(object); }

  const std::string& version() const { return version_; }
  bool changed_fp_state() const { return changed_fp_state_; }  // when it was loaded; undone
  void* env() const { return env_; }
  void* memory() const { return memory_; }

 private:
  OnnxRuntime() = default;
  Status Checked(void* status) const;
  template <class Pointer>
  Pointer Get(Function function) const {
    return reinterpret_cast<Pointer>(const_cast<void*>(api_[static_cast<std::size_t>(function)]));
  }

  const void* const* api_ = nullptr;
  std::string version_;
  bool changed_fp_state_ = false;
  void* env_ = nullptr;
  void* memory_ = nullptr;
};

// One input or output of a model, with its elements, which must outlive the session.
struct OnnxArgument {
  OnnxValue value;
  void* data = nullptr;
  std::size_t bytes = 0;
};

// A model of one node, its arguments bound once, all buffers reused.
class OnnxSession {
 public:
  explicit OnnxSession(const OnnxRuntime& runtime) : runtime_(runtime) {}
  OnnxSession(const OnnxSession&) = delete;
  OnnxSession& operator=(const OnnxSession&) = delete;
  ~OnnxSession();

  Status Prepare(const OnnxNode& node, int opset, const std::vector<OnnxArgument>& inputs,
                 const std::vector<OnnxArgument>& outputs, int threads);
  // Reads the inputs and writes the outputs.
  Status Run();

 private:
  Status CreateSession(const std::string& model, int threads);
  Status Bind(const OnnxArgument& argument, std::vector<std::string>* names,
              std::vector<void*>* values);

  const OnnxRuntime& runtime_;
  void* session_ = nullptr;
  std::vector<std::string> input_names_, output_names_;
  std::vector<void*> input_values_, output_values_;
};

}  // namespace attest
