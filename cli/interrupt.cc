// SPDX-License-Identifier: Apache-2.0
#include "cli/interrupt.h"

namespace attest {
namespace {

volatile std::sig_atomic_t requested = 0;

void Request(int) { requested = 1; }

}  // namespace

InterruptScope::InterruptScope() {
  requested = 0;
  sigaction(SIGINT, nullptr, &previous_);
  if (previous_.sa_handler == SIG_IGN) return;
  struct sigaction action{};
  action.sa_handler = Request;
  action.sa_flags = static_cast<int>(SA_RESTART | SA_RESETHAND);
  sigaction(SIGINT, &action, nullptr);
}

InterruptScope::~InterruptScope() { sigaction(SIGINT, &previous_, nullptr); }

bool InterruptScope::Requested() { return requested != 0; }

}  // namespace attest
