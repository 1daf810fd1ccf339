// SPDX-License-Identifier: Apache-2.0
// Plug-ins that do one thing wrong each: the library's file name misbehaving_WHAT.so says which,
// "right" is none. But for that they are the example plug-in, and decline whatever that does not
// offer.
#include <attest/plugin.h>
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cfenv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <limits>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

// The functions of audit/examples/attention_plugin.c, under other names.
extern "C" int right_run(const AttestCall* call);
extern "C" const char* right_info(void);

namespace {

// WHAT of the file that this code was loaded from.
const std::string kHow = [] {
  Dl_info library{};
  ::dladdr(reinterpret_cast<const void*>(&right_run), &library);
  std::string name = library.dli_fname;
  name.erase(0, name.rfind('/') + 1);
  name.erase(0, std::string_view("misbehaving_").size());
  return name.substr(0, name.find('.'));
}();

// Flush to zero, denormals are zero.
void FlushSubnormals() {
#if defined(__SSE__)
  _mm_setcsr(_mm_getcsr() | 0x8040u);
#endif
}

struct AtLoad {
  AtLoad() {
    if (kHow == "print_at_load") std::puts("hello");
    if (kHow == "ftz_at_load") FlushSubnormals();
    if (kHow == "crash_at_load") std::raise(SIGSEGV);
  }
} at_load;

// What the example declares, for the plug-in without a declaration.
bool Offers(const AttestCall* call) {
  const std::string_view contract = call->contract;
  const auto has = [&](std::string_view text) {
    return contract.find(text) != std::string_view::npos;
  };
  const DLTensor* const q = AttestInput(call, "q");
  return call->num_inputs == 3 && call->num_outputs == 1 && q->dtype.code == ATTEST_FLOAT &&
         q->dtype.bits == 32 && has(R"("kind":"dot","scale":"rsqrt_dk","softcap":0.0)") &&
         has(R"("causal":"none","window":[-1,-1])") && !has(R"("alibi":"default")") &&
         !has(R"("dropout")") && !has(R"("local")") &&
         (has(R"("empty_row":"zero")") || AttestInput(call, "k")->shape[2] > 0);
}

// Pointers to the elements of a tensor of rank 4, in row-major order.
std::vector<float*> Elements(const DLTensor& tensor) {
  std::vector<float*> elements;
  const auto& shape = tensor.shape;
  const auto& strides = tensor.strides;
  for (std::int64_t b = 0; b < shape[0]; ++b) {
    for (std::int64_t h = 0; h < shape[1]; ++h) {
      for (std::int64_t i = 0; i < shape[2]; ++i) {
        for (std::int64_t c = 0; c < shape[3]; ++c) {
          elements.push_back(static_cast<float*>(tensor.data) + b * strides[0] + h * strides[1] +
                             i * strides[2] + c * strides[3]);
        }
      }
    }
  }
  return elements;
}

// 4 GiB at most, slowly enough to be noticed on the way.
void Hog() {
  static std::vector<std::unique_ptr<char[]>> memory;
  constexpr std::size_t kBlock = std::size_t{64} << 20;
  for (int i = 0; i < 64; ++i) {
    memory.push_back(std::make_unique<char[]>(kBlock));
    ::usleep(10'000);
  }
}

[[noreturn]] void Sleep() {
  while (true) ::sleep(1);
}

void BeforeTheCall() {
  if (kHow == "crash") std::raise(SIGSEGV);
  if (kHow == "abort") std::abort();
  if (kHow == "exit") std::exit(0);
  if (kHow == "loop") Sleep();
  if (kHow == "loop_with_child") {
    ::fork();
    Sleep();
  }
  if (kHow == "hog") Hog();
  if (kHow == "throw") throw std::runtime_error("no attention\ntoday");
  if (kHow == "throw_number") throw 7;
}

void SpoilOutput(const AttestCall* call) {
  const std::vector<float*> out = Elements(*AttestOutput(call, "out"));
  const std::vector<float*> v = Elements(*AttestInput(call, "v"));
  static std::random_device device;
  static std::vector<float> previous;
  std::vector<float> result;
  for (const float* element : out) result.push_back(*element);
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (kHow == "zeros") *out[i] = 0.0f;
    if (kHow == "nan") *out[i] = std::numeric_limits<float>::quiet_NaN();
    if (kHow == "random") *out[i] = static_cast<float>(device()) / 4294967296.0f;
    if (kHow == "copy_input" && !v.empty()) *out[i] = *v[i % v.size()];
    if (kHow == "previous" && i < previous.size()) *out[i] = previous[i];
  }
  previous = result;
  if (!out.empty() && kHow == "write_outside") *(*std::max_element(out.begin(), out.end()) + 1) = 1;
  const std::vector<float*> q = Elements(*AttestInput(call, "q"));
  if (!q.empty() && kHow == "write_input") *q.front() += 1.0f;
}

int Fail(const AttestCall* call, const char* message, int result) {
  std::snprintf(call->message, call->message_size, "%s", message);
  return result;
}

// How it was called, as a message: threads, the stride of heads of q and what out held.
int Report(const AttestCall* call) {
  const DLTensor* const out = AttestOutput(call, "out");
  float junk = 0.0f;
  std::memcpy(&junk, out->data, sizeof junk);
  std::snprintf(call->message, call->message_size, "threads %d, stride %lld, %s", call->threads,
                static_cast<long long>(AttestInput(call, "q")->strides[1]),
                junk != junk ? "nan" : "huge");
  return ATTEST_ERROR;
}

}  // namespace

int attest_plugin_run(const AttestCall* call) {
  if (!Offers(call)) return Fail(call, "only plain f32 attention", ATTEST_UNSUPPORTED);
  if (kHow == "crash_on_odd_lengths" && AttestInput(call, "k")->shape[2] % 2 == 1) {
    std::raise(SIGSEGV);
  }
  BeforeTheCall();
  if (kHow == "report") return Report(call);
  if (kHow == "read" && std::getchar() != EOF) return Fail(call, "read something", ATTEST_ERROR);
  if (kHow == "unwritten") return ATTEST_OK;
  const int result = right_run(call);
  SpoilOutput(call);
  if (kHow == "print") std::printf("hello");  // stays in the buffer
  if (kHow == "print_by_cout") std::cout << "hello from C++\n";
  if (kHow == "print_much") {
    for (int i = 0; i < 300'000; ++i) std::puts("0123456789");
  }
  if (kHow == "ftz") FlushSubnormals();
  if (kHow == "rounding") std::fesetround(FE_UPWARD);
#if defined(__SSE__)
  if (kHow == "traps") _mm_setcsr(_mm_getcsr() & ~0x0200u);  // division by zero
#endif
  if (kHow == "error") return Fail(call, "out of\tluck\n", ATTEST_ERROR);
  if (kHow == "silent_error") return ATTEST_ERROR;
  if (kHow == "unknown_result") return Fail(call, "what now", 7);
  return result;
}

const char* attest_plugin_info(void) {
  if (kHow == "later_abi") return R"({"abi":2,"name":"later"})";
  if (kHow == "broken_info") return R"({"abi":1,)";
  if (kHow == "list_info") return "[1]";
  return right_info();
}
